{{- define "hugepilot.name" -}}
{{- if contains "hugepilot" .Release.Name }}{{ .Release.Name | trunc 50 }}{{ else }}{{ printf "%s-hugepilot" .Release.Name | trunc 50 }}{{ end }}
{{- end }}

{{- define "hugepilot.selector" -}}
app.kubernetes.io/name: hugepilot
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hugepilot.labels" -}}
{{ include "hugepilot.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "hugepilot.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end }}
{{- end }}

{{- define "hugepilot.metricsHost" -}}
{{- with .Values.metrics.address }}{{ if contains ":" . }}[{{ trimAll "[]" . }}]{{ else }}{{ . }}{{ end }}{{ end }}
{{- end }}

{{- define "hugepilot.config" -}}
# Made by the chart from daemon.settings.
agents = true
metrics = "/run/hugepilot/metrics.sock"
{{- range $key, $value := .Values.daemon.settings }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
