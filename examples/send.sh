#!/bin/sh
# Sends a notification to a user with curl, and queries its outcome.
#
#   NOROSHI_KEY=... examples/send.sh u1 "Hello" "from the backend"
set -eu
base="${NOROSHI_URL:-http://127.0.0.1:8080}"
user="${1:?usage: NOROSHI_KEY=... send.sh USER TITLE [BODY]}"
title="${2:?usage: NOROSHI_KEY=... send.sh USER TITLE [BODY]}"
body="${3:-}"

# Escapes quotes and backslashes for JSON.
json() { printf '%s' "$1" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g'; }

# The idempotency key makes a retry safe if the answer was lost.
answer="$(curl -sS --fail-with-body --retry 3 "$base/v1/notifications" \
  -H "Authorization: Bearer $NOROSHI_KEY" \
  -H 'Content-Type: application/json' \
  -H "Idempotency-Key: send-sh-$$-$(date +%s)" \
  -d "{\"to\": {\"users\": [\"$(json "$user")\"]}, \"when\": \"stored\", \"ttl\": \"24h\",
       \"notification\": {\"title\": \"$(json "$title")\", \"body\": \"$(json "$body")\"}}")"
echo "$answer"

id="$(printf '%s' "$answer" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')"
curl -sS --fail-with-body "$base/v1/notifications/$id" -H "Authorization: Bearer $NOROSHI_KEY"
echo
