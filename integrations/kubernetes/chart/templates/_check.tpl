{{- /* What the schema cannot say of values. */}}
{{- define "hugepilot.check" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is not set: push the image that `make image` makes to a registry of yours, and name it there; no public registry has it" }}
{{- end }}
{{- with .Values.metrics }}
{{- if and .enabled (not .tokenSecret) (not .withoutToken) }}
{{- fail "metrics.enabled needs metrics.tokenSecret, or metrics.withoutToken where a network policy says who may collect" }}
{{- end }}
{{- end }}
{{- end }}
