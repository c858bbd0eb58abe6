"""Home Assistant with only its MQTT integration.

    home_assistant.py PORT USER PASSWORD FOLDER

Prints `state ENTITY STATE` for each change of a sensor or switch. Each line of its input is a service to call:
`switch turn_on switch.lamp_power`. An empty line, or the end of the input, stops it.
"""

import asyncio
import json
import sys
from pathlib import Path

from homeassistant import bootstrap, runner

DOMAINS = ("sensor", "switch")


def configure(port: int, user: str, password: str, folder: Path) -> None:
    (folder / ".storage").mkdir(parents=True)
    (folder / "configuration.yaml").write_text("logger:\n  default: warning\n")
    data = {
        "broker": "127.0.0.1",
        "port": port,
        "username": user,
        "password": password,
        "discovery": True,
        "discovery_prefix": "homeassistant",
    }
    entry = {
        "entry_id": "noroshi",
        "version": 1,
        "minor_version": 1,
        "domain": "mqtt",
        "title": "noroshi",
        "data": data,
        "options": {},
        "pref_disable_new_entities": False,
        "pref_disable_polling": False,
        "source": "user",
        "unique_id": None,
        "disabled_by": None,
    }
    storage = {"version": 1, "minor_version": 1, "key": "core.config_entries", "data": {"entries": [entry]}}
    (folder / ".storage" / "core.config_entries").write_text(json.dumps(storage))


async def main(folder: Path) -> None:
    # It installs dependencies of its integrations into the folder (PyPI).
    config = runner.RuntimeConfig(config_dir=str(folder), skip_pip=False)
    hass = await bootstrap.async_setup_hass(config)
    if hass is None:
        sys.exit("Home Assistant does not start")

    def tell(state) -> None:
        if state is not None and state.domain in DOMAINS:
            print("state", state.entity_id, state.state, flush=True)

    hass.bus.async_listen("state_changed", lambda event: tell(event.data.get("new_state")))
    await hass.async_start()
    for state in hass.states.async_all(DOMAINS):
        tell(state)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := (await reader.readline()).decode().strip():
        domain, service, entity = line.split()
        await hass.services.async_call(domain, service, {"entity_id": entity}, blocking=True)
    await hass.async_stop(force=True)


if __name__ == "__main__":
    path = Path(sys.argv[4])
    configure(int(sys.argv[1]), sys.argv[2], sys.argv[3], path)
    asyncio.run(main(path))
