# A trial across replicas, seen through a real Prometheus, for tests/kube/run to source.
#
# Owns: a Prometheus of Debian's package below $state, without its service. Never touches: the cluster, other than by reading its metrics.

# Unpacked, not installed: the package would start a service.
fetch_prometheus() {
    (cd "$state" && apt-get download -qq prometheus && dpkg -x prometheus_*.deb prometheus)
    prometheus=$state/prometheus/usr/bin/prometheus promtool=$state/prometheus/usr/bin/promtool
}

# OpenMetrics as Prometheus' older format, the only one that promtool reads: there the suffix belongs to a metric's name.
as_text() {
    awk 'NR == FNR { if ($2 == "TYPE") suffix[$3] = $4 == "counter" ? "_total" : $4 == "info" ? "_info" : ""; next }
        /^# (HELP|TYPE)/ { $3 = $3 suffix[$3]; if ($2 == "TYPE" && $4 == "info") $4 = "gauge" }
        !/^# (EOF|UNIT)/' "$1" "$1"
}

# What its own linter says of our metrics and rules, and whether each alert fires when it should, and only then.
check_metrics() {
    collects > "$state/metrics"
    as_text "$state/metrics" | "$promtool" check metrics > "$state/metrics.lint" 2>&1 || { cat "$state/metrics.lint" >&2; exit 1; }
    "$promtool" check rules integrations/prometheus/rules.yml > "$state/rules.lint" 2>&1 || { cat "$state/rules.lint" >&2; exit 1; }
    "$promtool" test rules integrations/prometheus/rules-test.yml > "$state/rules.test" 2>&1 || { cat "$state/rules.test" >&2; exit 1; }
    say "promtool has nothing against the metrics; of the rules: $(tr '\n' ' ' < "$state/rules.lint")"
    (cd tests/kube/dashboards && go run . "$OLDPWD"/integrations/grafana/*.json) || exit 1
    say "Grafana's own types have nothing against the dashboards"
}

start_prometheus() {
    printf '%s' "$token" > "$state/token"
    cat > "$state/prometheus.yml" <<EOF
global: {scrape_interval: 2s, evaluation_interval: 2s}
rule_files: [$PWD/integrations/prometheus/rules.yml]
scrape_configs:
  - job_name: hugepilot
    honor_labels: true
    authorization: {credentials_file: $state/token}
    static_configs: [{targets: ["$address:9472"]}]
EOF
    "$promtool" check config "$state/prometheus.yml" > "$state/config.lint" 2>&1 || { cat "$state/config.lint" >&2; exit 1; }
    start prometheus "$prometheus" --config.file "$state/prometheus.yml" --storage.tsdb.path "$state/tsdb" --web.listen-address 127.0.0.1:19090
    wait_for "Prometheus" 30 curl -fsS -m 5 http://127.0.0.1:19090/-/ready
}

# Series of an expression: one line each, its labels and its value.
asked() {
    curl -fsS -m 5 --data-urlencode "query=$1" http://127.0.0.1:19090/api/v1/query |
        python3 -c 'import json, sys; [print(each["metric"], each["value"][1]) for each in json.load(sys.stdin)["data"]["result"]]'
}

# Each expression of a dashboard, with its variables as Grafana sets them first.
expressions() {
    python3 -c 'import json, sys
def of(part):
    each = part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
    return ([part["expr"]] if isinstance(part, dict) and "expr" in part else []) + [one for inner in each for one in of(inner)]
print("\n".join(" ".join(one.split()) for one in of(json.load(open(sys.argv[1])))))' "$1" |
        sed -e 's/\$__rate_interval/1m/g; s/\$__range/5m/g; s/\$[a-z]\+/.*/g'
}

# Prometheus understands each, and most find series: not those of what never happened here.
answer_dashboards() {
    local each expression number found answer
    for each in integrations/grafana/*.json; do
        number=0 found=0
        while read -r expression; do
            number=$((number + 1))
            answer=$(asked "$expression") || { say "Prometheus does not understand: $expression"; exit 1; }
            if [ -n "$answer" ]; then found=$((found + 1)); else echo "$(basename "$each"): $expression" >> "$state/without_series"; fi
        done < <(expressions "$each")
        say "$(basename "$each" .json): $found of $number expressions find series"
        [ $((found * 2)) -gt "$number" ] || { cat "$state/without_series" >&2; exit 1; }
    done
}

has_both_arms() { asked 'workload:hugepilot_trial_cpus:avg{workload="web"}' | grep -c "'arm': '\(promoted\|observed\)'" | grep -qx 2; }
arm() { asked "hugepilot_target_promoting{workload=\"web\", arm=\"$1\"}" | grep -c .; }

# Replicas of one Deployment, of which the hash of the uid promotes about half.
replicas_on_trial() {
    say "16 replicas on trial"
    local pods
    pods=$(gauge hugepilot_agent_pods)
    kubectl apply -f - > /dev/null <<EOF
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 16
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {hugepilot.io/trial: "50%", hugepilot.io/max-growth: "20%"}}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 1
      containers:
        - name: server
          image: docker.io/library/servers:test
          imagePullPolicy: Never
          command: [/bin/sh, -c, "$memcached & exec $python -S /read_memcached.py 0.02"]
          resources: {requests: {memory: 16Mi, cpu: 10m}}
EOF
    wait_for "all replicas" 120 kubectl wait --for=condition=Available deployment/web --timeout=1s
    wait_for "both arms in Prometheus" 120 has_both_arms
    wait_for "a verdict on the trial" 180 told_of_trial
    say "$(arm promoted) replicas are promoted, $(arm observed) observed: $(tr '\n' ' ' < "$state/trial")"
    kubectl delete deployment web > /dev/null
    wait_for "none of them known" 120 knows_pods "$pods"
}

told_of_trial() {
    "$hugepilot" fleet trial default/web --prometheus http://127.0.0.1:19090 --min-age 1m \
        --metric 'sum by (namespace, pod) (avg_over_time(hugepilot_target_busy_cpus[1m]))' > "$state/trial"
    grep -q ' % (' "$state/trial"
}
