"""One line for each record of `fairtrial batch`."""

import json
import sys

for line in sys.stdin:
    record = json.loads(line)
    said = json.dumps(record["value"]) if record["verdict"] == "ok" else record["error"]["message"]
    print("%s: %s: %s" % (record["id"], record["verdict"], said))
