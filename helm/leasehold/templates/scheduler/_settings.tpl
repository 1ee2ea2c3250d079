{{/* A value of TOML. JSON's strings, numbers and truth values are TOML's; `inf` is only TOML's. */}}
{{- define "leasehold.tomlValue" -}}
{{- if and (kindIs "string" .) (eq . "inf") }}inf
{{- else if kindIs "map" . }}{ {{ range $n, $name := keys . | sortAlpha }}{{ if $n }}, {{ end }}{{ toJson $name }} = {{ toJson (index $ $name) }}{{ end }} }
{{- else }}{{ toJson . }}
{{- end -}}
{{- end -}}

{{/* The program's configuration: what follows from the chart's values, and `scheduler.config`. */}}
{{- define "leasehold.toml" -}}
{{- $v := .Values -}}
{{- $server := dict "host" "::" "port" 8642 "metrics_open" $v.monitoring.metricsOpen "admin_token_file" "/etc/leasehold/admin/token" -}}
{{- if include "leasehold.tlsSecret" . -}}
{{- $server = merge $server (dict "tls_cert" "/etc/leasehold/tls/tls.crt" "tls_key" "/etc/leasehold/tls/tls.key") -}}
{{- end -}}
{{- if gt (int $v.scheduler.replicas) 1 -}}
{{- /* Through an Ingress nobody reaches the leader's pod by its own address. */ -}}
{{- $server = merge $server (dict "forward" true) -}}
{{- end -}}
{{- with $v.scheduler.ingress.trustedProxies -}}
{{- $server = merge $server (dict "trusted_proxies" (join "," .)) -}}
{{- end -}}
{{- $chart := dict "server" $server "log" (dict "json" true) -}}
{{- if include "leasehold.reviewsTokens" . -}}
{{- $account := printf "%s/%s" .Release.Namespace (include "leasehold.agentAccount" .) -}}
{{- $kubernetes := dict "agent_account" $account "audience" $v.agent.enrolment.audience -}}
{{- with $v.agent.enrolment.approvedLabel -}}
{{- $_ := set $kubernetes "approved_label" . -}}
{{- end -}}
{{- $_ := set $chart "kubernetes" $kubernetes -}}
{{- end -}}
{{- if or $v.agent.enabled (gt (int $v.scheduler.replicas) 1) -}}
{{- /* On a node out of sight the guard ends a pod so long after its lease: docs/adr/0006. And the clocks of
       two nodes may differ: a successor reads the deadlines that its predecessor's clock has set. */ -}}
{{- $_ := set $chart "leases" (dict "margin_s" 10) -}}
{{- end -}}
{{- if dig "secretKeys" "existingSecret" "" $v.scheduler -}}
{{- $_ := set $chart "secrets" (dict "key_file" "/etc/leasehold/secret-keys/keys") -}}
{{- end -}}
{{- if $v.scheduler.migrations.hook -}}
{{- $_ := set $chart "store" (dict "migrate" false) -}}
{{- end -}}
{{- $all := mergeOverwrite $chart (deepCopy $v.scheduler.config) -}}
state_dir = "/var/lib/leasehold"
{{- range $section, $settings := $all }}

[{{ $section }}]
{{- range $key, $value := omit $settings "parameters" }}
{{ $key }} = {{ include "leasehold.tomlValue" $value }}
{{- end }}
{{- with $settings.parameters }}

[{{ $section }}.parameters]
{{- range $key, $value := . }}
{{ $key }} = {{ include "leasehold.tomlValue" $value }}
{{- end }}
{{- end }}
{{- end }}
{{ end -}}

{{/* Environment of `leasehold serve` and `leasehold migrate`: the database's secrets. */}}
{{- define "leasehold.databaseEnv" -}}
{{- $pg := .Values.database.postgresql -}}
{{- if eq .Values.database.type "postgresql" }}
{{- if $pg.host }}
- name: PGPASSWORD  # libpq reads it; passwords in URLs would need escapes
  valueFrom:
    secretKeyRef: {name: {{ $pg.existingSecret | quote }}, key: {{ $pg.passwordKey | quote }}}
- name: LEASEHOLD_STORE__URL
  value: {{ printf "postgresql://%s@%s:%v/%s?sslmode=%s" $pg.user $pg.host $pg.port $pg.database $pg.sslmode | quote }}
{{- else }}
- name: LEASEHOLD_STORE__URL
  valueFrom:
    secretKeyRef: {name: {{ $pg.existingSecret | quote }}, key: {{ $pg.urlKey | quote }}}
{{- end }}
{{- end }}
{{- end -}}
