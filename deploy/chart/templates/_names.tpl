{{/* The templates use only what both Helm and `dovetail install` implement: no variables, no two-variable ranges,
     only the functions listed in src/dovetail/install/chart_functions.py. */}}

{{- define "dovetail.scheduler" -}}
{{ .Release.Name }}-scheduler
{{- end }}

{{- define "dovetail.serviceAccount" -}}
{{ default (include "dovetail.scheduler" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "dovetail.selector" -}}
app.kubernetes.io/name: dovetail
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: scheduler
{{- end }}

{{- define "dovetail.labels" -}}
{{ include "dovetail.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: dovetail
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "dovetail.nodeAgent" -}}
{{ .Release.Name }}-node-agent
{{- end }}

{{- define "dovetail.nodeAgentSelector" -}}
app.kubernetes.io/name: dovetail
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node-agent
{{- end }}

{{- define "dovetail.nodeAgentLabels" -}}
{{ include "dovetail.nodeAgentSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: dovetail
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "dovetail.dashboard" -}}
{{ .Release.Name }}-dashboard
{{- end }}

{{- define "dovetail.dashboardSelector" -}}
app.kubernetes.io/name: dovetail
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: dashboard
{{- end }}

{{- define "dovetail.dashboardLabels" -}}
{{ include "dovetail.dashboardSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: dovetail
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "dovetail.history" -}}
{{ .Release.Name }}-history
{{- end }}

{{- define "dovetail.historySelector" -}}
app.kubernetes.io/name: dovetail
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: history
{{- end }}

{{- define "dovetail.historyLabels" -}}
{{ include "dovetail.historySelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: dovetail
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "dovetail.exporter" -}}
{{ .Release.Name }}-exporter
{{- end }}

{{- define "dovetail.exporterSelector" -}}
app.kubernetes.io/name: dovetail
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: exporter
{{- end }}

{{- define "dovetail.exporterLabels" -}}
{{ include "dovetail.exporterSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: dovetail
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "dovetail.lifecycle" -}}
{{ .Release.Name }}-lifecycle
{{- end }}

{{- define "dovetail.lifecycleSelector" -}}
app.kubernetes.io/name: dovetail
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: lifecycle
{{- end }}

{{- define "dovetail.lifecycleLabels" -}}
{{ include "dovetail.lifecycleSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: dovetail
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "dovetail.image" -}}
{{ required "image.repository is required: name the image you built, such as --set image.repository=example.com/gpu/dovetail" .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}
{{- else }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{/* The fields of the configuration file that the chart sets, whatever the values say. */}}
{{- define "dovetail.decided" -}}
apiVersion: dovetail.dev/v1alpha1
kind: SchedulerConfiguration
schedulerNames: {{ .Values.schedulerNames | toJson }}
leaderElection:
  namespace: {{ .Release.Namespace }}
  name: {{ include "dovetail.scheduler" . }}
serving:
  address: 0.0.0.0
  port: {{ .Values.port }}
kaiShares:
  enabled: {{ if include "dovetail.kaiShares" . }}true{{ else }}false{{ end }}
{{- if include "dovetail.agentMetrics" . }}
metrics:
  nodeAgents:
    service: {{ .Release.Namespace }}/{{ include "dovetail.nodeAgent" . }}
    tokenFile: /etc/dovetail-metrics/token
{{- end }}
{{- end }}

{{/* Not empty if the scheduler reads the use of GPUs from node agents. */}}
{{- define "dovetail.agentMetrics" -}}
{{- if .Values.nodeAgent.idleMetrics -}}
{{- if not (and .Values.nodeAgent.enabled .Values.nodeAgent.metricsPort) -}}
{{- fail "nodeAgent.idleMetrics needs nodeAgent.enabled and a nodeAgent.metricsPort" -}}
{{- end -}}
yes
{{- end }}
{{- end }}

{{- define "dovetail.metricsReader" -}}
{{ .Release.Name }}-agent-metrics
{{- end }}

{{/* Not empty if KAI's annotations for shares of a GPU are honoured. */}}
{{- define "dovetail.kaiShares" -}}
{{- if or (eq .Values.kaiShares.mode "always") (and (eq .Values.kaiShares.mode "auto") (has "kai-scheduler" .Values.schedulerNames)) -}}
yes
{{- end }}
{{- end }}

{{- define "dovetail.policyVersion" -}}
{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
admissionregistration.k8s.io/v1
{{- else -}}
admissionregistration.k8s.io/v1beta1
{{- end }}
{{- end }}

{{/* Of endpoints whose metrics are about other pods: their labels stay, and the labels of the endpoint's own pod,
     which would stand where a GPU has no holder, are dropped. */}}
{{- define "dovetail.ofOthers" -}}
honorLabels: true
relabelings:
  - action: labeldrop
    regex: namespace|pod|container|service|endpoint
{{- end }}
