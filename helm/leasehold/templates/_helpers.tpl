{{/* Names ---------------------------------------------------------------------------------------- */}}

{{- define "leasehold.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters, so that every suffix of this chart fits into 63. */}}
{{- define "leasehold.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "leasehold.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "leasehold.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Name of an object: (list . "suffix"). */}}
{{- define "leasehold.nameOf" -}}
{{- printf "%s-%s" (include "leasehold.fullname" (index . 0)) (index . 1) -}}
{{- end -}}

{{/* Name of an object without a namespace, which no other release may have. */}}
{{- define "leasehold.clusterNameOf" -}}
{{- $root := index . 0 -}}
{{- printf "%s-%s-%s" $root.Release.Namespace (include "leasehold.fullname" $root) (index . 1) -}}
{{- end -}}

{{/* Name of the installation in labels of pods: another release may use the same namespace for its jobs. */}}
{{- define "leasehold.instance" -}}
{{- printf "%s.%s" .Release.Namespace (include "leasehold.fullname" .) | trunc 63 -}}
{{- end -}}

{{/* Name of the Lease that owns the pods of jobs, as agents compute it. */}}
{{- define "leasehold.podOwner" -}}
{{- printf "leasehold-pods-%s" (include "leasehold.instance" . | sha256sum | trunc 8) -}}
{{- end -}}

{{/* Requests and limits of a container that agents make, as their settings: requests.cpu=5m,limits.cpu=200m */}}
{{- define "leasehold.figures" -}}
{{- $figures := list -}}
{{- range $part, $given := pick (. | default dict) "requests" "limits" -}}
{{- range $resource, $quantity := $given -}}
{{- if $quantity -}}{{- $figures = append $figures (printf "%s.%s=%v" $part $resource $quantity) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- join "," $figures -}}
{{- end -}}

{{/* Whether a program's event loop moves: it touches a file every few seconds. An image of the release before has none. */}}
{{- define "leasehold.movesProbe" -}}
exec:
  command: [sh, -c, 'test -z "$(find {{ . }} -mmin +1)"']
initialDelaySeconds: 30
periodSeconds: 30
timeoutSeconds: 10
{{- end -}}

{{- define "leasehold.schedulerAccount" -}}
{{- $account := .Values.scheduler.serviceAccount -}}
{{- $account.create | ternary (default (include "leasehold.nameOf" (list . "scheduler")) $account.name) $account.name -}}
{{- end -}}

{{- define "leasehold.agentAccount" -}}
{{- $account := .Values.agent.serviceAccount -}}
{{- $account.create | ternary (default (include "leasehold.nameOf" (list . "agent")) $account.name) $account.name -}}
{{- end -}}

{{- define "leasehold.adminSecret" -}}
{{- default (include "leasehold.nameOf" (list . "admin")) .Values.scheduler.adminToken.existingSecret -}}
{{- end -}}

{{- define "leasehold.stateClaim" -}}
{{- default (include "leasehold.nameOf" (list . "state")) .Values.scheduler.persistence.existingClaim -}}
{{- end -}}

{{- define "leasehold.madeTlsSecret" -}}
{{- include "leasehold.nameOf" (list . "tls") -}}
{{- end -}}

{{/* Whether helm speaks to a cluster; `helm template` does not, and would make another certificate each time. */}}
{{- define "leasehold.hasCluster" -}}
{{- if lookup "v1" "Namespace" "" "default" }}true{{ end -}}
{{- end -}}

{{/* Whether the chart makes the scheduler's certificate. Values of an earlier chart (--reuse-values) know no mode. */}}
{{- define "leasehold.makesTls" -}}
{{- $s := .Values.scheduler -}}
{{- $mode := default "auto" $s.tls.mode -}}
{{- if and $s.enabled (not $s.tls.existingSecret) -}}
{{- if eq $mode "generate" -}}true
{{- else if and (eq $mode "auto") (include "leasehold.hasCluster" .) -}}
{{- if lookup "v1" "Secret" .Release.Namespace (include "leasehold.madeTlsSecret" .) -}}true
{{- else if and .Release.IsInstall (not $s.ingress.enabled) (le (int $s.replicas) 1) -}}true
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Name of the Secret with the scheduler's certificate; empty: it speaks HTTP. */}}
{{- define "leasehold.tlsSecret" -}}
{{- if .Values.scheduler.tls.existingSecret -}}
{{- .Values.scheduler.tls.existingSecret -}}
{{- else if include "leasehold.makesTls" . -}}
{{- include "leasehold.madeTlsSecret" . -}}
{{- end -}}
{{- end -}}

{{/* Who counts pods of others: "counter", "agents" themselves, or nobody. */}}
{{- define "leasehold.countedBy" -}}
{{- if and .Values.agent.enabled .Values.rbac.foreignPods -}}
{{- .Values.rbac.create | ternary "counter" "agents" -}}
{{- end -}}
{{- end -}}

{{/* What a policy does with a request that it refuses: (list . "name of the binding" given). At an upgrade from a
release without the policy it warns only: jobs that are stored run on. What it did once it goes on doing. */}}
{{- define "leasehold.policyActions" -}}
{{- $root := index . 0 -}}
{{- $given := index . 2 -}}
{{- $kind := "ValidatingAdmissionPolicyBinding" -}}
{{- $found := lookup "admissionregistration.k8s.io/v1" $kind "" (index . 1) | default dict -}}
{{- if $given -}}
{{- toJson (list $given) -}}
{{- else if dig "spec" "validationActions" list $found -}}
{{- toJson $found.spec.validationActions -}}
{{- else if and $root.Release.IsUpgrade (include "leasehold.hasCluster" $root) -}}
["Warn","Audit"]
{{- else -}}
["Deny"]
{{- end -}}
{{- end -}}

{{/* Labels ----------------------------------------------------------------------------------------- */}}

{{/* What selects a component's pods; never changes: (list . "component"). */}}
{{- define "leasehold.selector" -}}
app.kubernetes.io/name: {{ include "leasehold.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of a component's objects: (list . "component"). */}}
{{- define "leasehold.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{ include "leasehold.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: leasehold
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Annotations of an object: (list . dict ...), later ones win; with the key, or nothing. */}}
{{- define "leasehold.annotations" -}}
{{- $root := index . 0 -}}
{{- $all := dict -}}
{{- range prepend (rest .) $root.Values.commonAnnotations -}}
{{- $all = mergeOverwrite $all (deepCopy (default (dict) .)) -}}
{{- end -}}
{{- with $all }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Pods ------------------------------------------------------------------------------------------- */}}

{{/* (list . .Values.scheduler.image) */}}
{{- define "leasehold.image" -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default (index . 0).Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Security context of a pod, as the level `restricted` asks for; given values win. */}}
{{- define "leasehold.podSecurityContext" -}}
{{- $own := dict "runAsNonRoot" true "runAsUser" 64200 "runAsGroup" 64200 "fsGroup" 64200 "fsGroupChangePolicy" "OnRootMismatch" "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- toYaml (mergeOverwrite $own (deepCopy (default (dict) .))) -}}
{{- end -}}

{{/* Security context of a container, likewise. */}}
{{- define "leasehold.securityContext" -}}
{{- $own := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{- toYaml (mergeOverwrite $own (deepCopy (default (dict) .))) -}}
{{- end -}}

{{/* Addresses -------------------------------------------------------------------------------------- */}}

{{- define "leasehold.scheme" -}}
{{- include "leasehold.tlsSecret" . | empty | ternary "http" "https" -}}
{{- end -}}

{{/* Where agents and tests find the scheduler within the cluster. */}}
{{- define "leasehold.url" -}}
{{- printf "%s://%s.%s.svc:%v" (include "leasehold.scheme" .) (include "leasehold.fullname" .) .Release.Namespace .Values.scheduler.service.port -}}
{{- end -}}

{{/* Whether the API server reviews agents' tokens for this release's scheduler. */}}
{{- define "leasehold.reviewsTokens" -}}
{{- if and .Values.scheduler.enabled .Values.agent.enabled (eq .Values.agent.enrolment.mode "serviceAccount") }}true{{ end -}}
{{- end -}}

{{/* Refusals: values that do not go together. */}}
{{- define "leasehold.check" -}}
{{- $s := .Values.scheduler -}}
{{- $pg := .Values.database.postgresql -}}
{{- if $s.enabled -}}
{{- if and (eq .Values.database.type "sqlite") (gt (int $s.replicas) 1) -}}
{{- fail (printf "scheduler.replicas is %d, and SQLite can be used by one process only: set database.type=postgresql, or scheduler.replicas=1" (int $s.replicas)) -}}
{{- end -}}
{{- if and (eq .Values.database.type "postgresql") (not $pg.existingSecret) -}}
{{- fail "database.type is postgresql: name the Secret with its URL or password in database.postgresql.existingSecret" -}}
{{- end -}}
{{- if and $s.migrations.hook (ne .Values.database.type "postgresql") -}}
{{- fail "scheduler.migrations.hook needs database.type=postgresql: SQLite's volume belongs to the running scheduler, which migrates at its start" -}}
{{- end -}}
{{- if and $s.ingress.enabled (not $s.ingress.hosts) -}}
{{- fail "scheduler.ingress.enabled is true: name at least one host in scheduler.ingress.hosts" -}}
{{- end -}}
{{- if and (not $s.serviceAccount.create) (not $s.serviceAccount.name) -}}
{{- fail "scheduler.serviceAccount.create is false: give scheduler.serviceAccount.name" -}}
{{- end -}}
{{- if and .Values.monitoring.serviceMonitor.enabled (not .Values.monitoring.metricsOpen) (not .Values.monitoring.serviceMonitor.tokenSecret) -}}
{{- fail "monitoring.serviceMonitor.enabled is true, and /metrics asks for a token: name a Secret with a viewer's in monitoring.serviceMonitor.tokenSecret, or set monitoring.metricsOpen=true" -}}
{{- end -}}
{{- end -}}
{{- if .Values.agent.enabled -}}
{{- if and (eq .Values.agent.enrolment.mode "secret") (not .Values.agent.enrolment.existingSecret) -}}
{{- fail "agent.enrolment.mode is secret: name the Secret with a token for each node in agent.enrolment.existingSecret" -}}
{{- end -}}
{{- if and (not $s.enabled) (not .Values.agent.servers) -}}
{{- fail "scheduler.enabled is false: name the scheduler that agents serve in agent.servers" -}}
{{- end -}}
{{- if and (not .Values.agent.serviceAccount.create) (not .Values.agent.serviceAccount.name) -}}
{{- fail "agent.serviceAccount.create is false: give agent.serviceAccount.name" -}}
{{- end -}}
{{- if eq .Values.jobs.namespace .Release.Namespace -}}
{{- fail (printf "jobs.namespace is the release's own namespace '%s': pods of jobs need another one, apart from the scheduler's secrets" .Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
