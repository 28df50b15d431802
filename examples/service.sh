# A service for a team: a job runs here and keeps its past there, where everybody sees it.
#
# Run it on a virtual GPU:
#
# ZEUS_GPU='virtual:v100?clock=virtual' sh examples/service.sh

set -e
port=${PORT:-7070}
zeus serve --port "$port" > service.log 2>&1 &
service=$!
trap 'kill $service' EXIT

export ZEUS_STORE="http://127.0.0.1:$port"
until zeus jobs list > /dev/null 2>&1; do # it takes a second to start
  kill -0 $service
  sleep 0.2
done

zeus run examples/job.toml --recurrences 2
zeus jobs list
