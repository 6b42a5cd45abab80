{{- /* What the schema cannot say of values. */}}
{{- define "hugepilot.check" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is not set: push the image that `make image` makes to a registry of yours, and name it there; no public registry has it" }}
{{- end }}
{{- with .Values.metrics }}
{{- if and .enabled (not .tokenSecret) (not .withoutToken) }}
{{- fail "metrics.enabled needs metrics.tokenSecret, or metrics.withoutToken where a network policy says who may collect" }}
{{- end }}
{{- if and .enabled .withoutToken (not .networkPolicy.enabled) }}
{{- fail "metrics.withoutToken needs metrics.networkPolicy.enabled, and metrics.networkPolicy.from to say who may collect" }}
{{- end }}
{{- range $part := list "serviceMonitor" "prometheusRule" "dashboard" }}
{{- if and (index $.Values.metrics $part).enabled (not $.Values.metrics.enabled) }}
{{- fail (printf "metrics.%s.enabled needs metrics.enabled: without metrics there is nothing to collect, warn of or draw" $part) }}
{{- end }}
{{- end }}
{{- if and .serviceMonitor.enabled .tlsSecret (not .serviceMonitor.tlsConfig) }}
{{- fail "metrics.tlsSecret needs metrics.serviceMonitor.tlsConfig, such as {ca: {secret: {name: SECRET, key: ca.crt}}, serverName: NAME}: Prometheus would compare the certificate with the pod's address" }}
{{- end }}
{{- end }}
{{- end }}
