{{/* Egress to the name service, wherever it runs. */}}
{{- define "leasehold.egressDns" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end -}}

{{/* Egress to the API server, whose address a policy cannot name. The scheduler also asks others by HTTPS there. */}}
{{- define "leasehold.egressApiServer" -}}
- ports:
    - {port: 443, protocol: TCP}
    - {port: 6443, protocol: TCP}
{{- end -}}

{{/* Pods of a component of this release, seen from any namespace: (list . "component"). */}}
{{- define "leasehold.peer" -}}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ (index . 0).Release.Namespace }}
  podSelector:
    matchLabels:
      {{- include "leasehold.selector" . | nindent 6 }}
{{- end -}}
