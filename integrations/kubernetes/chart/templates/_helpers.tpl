{{- define "hugepilot.name" -}}
{{- $name := .Values.nameOverride | default "hugepilot" -}}
{{- $of_release := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- .Values.fullnameOverride | default $of_release | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "hugepilot.selector" -}}
app.kubernetes.io/name: hugepilot
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hugepilot.labels" -}}
{{ include "hugepilot.selector" . }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
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
