"""A Hub on loopback: the parts of its HTTP interface that huggingface_hub calls to push a model and to read one.

    with hub_server() as hub:
        subprocess.run([...], env={**os.environ, **hub.environment})
        hub.repositories["me/soup"]["model.safetensors"]

Files of weights travel by LFS (batch, PUT, verify), small ones in the commit, as on the real one. A commit is the only
thing that changes a repository.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

TOKEN = "hf_loopback"


@dataclass
class Hub:
    """What it holds, and what was asked of it."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)  # of LFS, by sha256
    commits: list[str] = field(default_factory=list)  # a repository for each
    asked: list[str] = field(default_factory=list)
    refuses_commits: bool = False
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to use it instead of the real one. Xet is a service of its own, so LFS carries the files."""
        return {"HF_ENDPOINT": self.url, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}


@contextlib.contextmanager
def hub_server() -> Iterator[Hub]:
    hub = Hub()
    server = uvicorn.Server(uvicorn.Config(_app(hub), host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.02)
    hub.port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield hub
    finally:
        server.should_exit = True
        thread.join(30)


def _app(hub: Hub) -> Starlette:
    def not_found(what: str) -> Response:
        return JSONResponse({"error": "not found"}, 404, headers={"X-Error-Code": what})

    def known(request: Request) -> bool:
        return request.headers.get("authorization") == f"Bearer {TOKEN}"

    def name_of(request: Request) -> str:
        return f"{request.path_params['user']}/{request.path_params['name']}"

    def sha(name: str) -> str:
        return hashlib.sha1(f"{name} {hub.commits.count(name)}".encode()).hexdigest()

    def entry(path: str, data: bytes) -> dict[str, Any]:
        found = {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
        if path.endswith(".safetensors"):
            found["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return found

    def listed(files: dict[str, bytes], below: str, *, recursive: bool) -> list[dict[str, Any]]:
        start = f"{below}/" if below else ""
        inside = [path for path in sorted(files) if path.startswith(start)]
        if recursive:
            return [entry(path, files[path]) for path in inside]
        folders = dict.fromkeys(start + p[len(start) :].split("/")[0] for p in inside if "/" in p[len(start) :])
        plain = [entry(path, files[path]) for path in inside if "/" not in path[len(start) :]]
        return [{"type": "directory", "path": f, "size": 0, "oid": hashlib.sha1(f.encode()).hexdigest()}
                for f in folders] + plain  # fmt: skip

    async def whoami(request: Request) -> Response:
        if not known(request):
            return JSONResponse({"error": "Invalid username or password."}, 401)
        return JSONResponse({"type": "user", "name": "me", "auth": {"accessToken": {"role": "write"}}, "orgs": []})

    async def create(request: Request) -> Response:
        if not known(request):
            return JSONResponse({"error": "unauthorized"}, 401)
        asked = await request.json()
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if name in hub.repositories:
            return JSONResponse({"error": "exists", "url": f"{hub.url}/{name}"}, 409)
        hub.repositories[name] = {".gitattributes": b"*.safetensors filter=lfs\n"}
        hub.private[name] = bool(asked.get("private")) or asked.get("visibility") == "private"
        return JSONResponse({"url": f"{hub.url}/{name}", "name": name})

    async def info(request: Request) -> Response:
        name = name_of(request)
        if name not in hub.repositories:
            return not_found("RepoNotFound")
        files = [{"rfilename": path} for path in hub.repositories[name]]
        return JSONResponse({"id": name, "sha": sha(name), "siblings": files, "private": hub.private.get(name, False)})

    async def tree(request: Request) -> Response:
        name, below = name_of(request), request.path_params.get("path", "")
        if name not in hub.repositories:
            return not_found("RepoNotFound")
        recursive = request.query_params.get("recursive", "").lower() in ("1", "true")
        found = listed(hub.repositories[name], below, recursive=recursive)
        return JSONResponse(found) if found or not below else not_found("EntryNotFound")

    async def paths_info(request: Request) -> Response:
        files = hub.repositories[name_of(request)]
        found = []
        for path in parse_qs((await request.body()).decode())["paths"]:
            if path in files:
                found.append(entry(path, files[path]))
            elif any(other.startswith(f"{path}/") for other in files):
                found.append({"type": "directory", "path": path, "size": 0, "oid": "0" * 40})
        return JSONResponse(found)

    async def validate(request: Request) -> Response:
        return JSONResponse({"errors": [], "warnings": []})

    async def preupload(request: Request) -> Response:
        files = (await request.json())["files"]
        modes = [{"path": f["path"], "uploadMode": "lfs" if f["path"].endswith(".safetensors") else "regular",
                  "shouldIgnore": False, "oid": None} for f in files]  # fmt: skip
        return JSONResponse({"files": modes})

    async def batch(request: Request) -> Response:
        objects = [
            {
                **one,
                "actions": {
                    "upload": {"href": f"{hub.url}/lfs/{one['oid']}", "header": {}},
                    "verify": {"href": f"{hub.url}/verify"},
                },
            }
            for one in (await request.json())["objects"]
        ]
        return JSONResponse({"transfer": "basic", "objects": objects})

    async def put(request: Request) -> Response:
        data = await request.body()
        oid = request.path_params["oid"]
        if hashlib.sha256(data).hexdigest() != oid:
            return Response(status_code=422)
        hub.objects[oid] = data
        return Response()

    async def verify(request: Request) -> Response:
        one = await request.json()
        return Response(status_code=200 if len(hub.objects.get(one["oid"], b"")) == one["size"] else 404)

    async def commit(request: Request) -> Response:
        if not known(request):
            return JSONResponse({"error": "unauthorized"}, 401)
        if hub.refuses_commits:
            return JSONResponse({"error": "the disk of the Hub is full"}, 507)
        name, added = name_of(request), {}
        for line in (await request.body()).splitlines():
            one = json.loads(line)
            value = one["value"]
            if one["key"] == "file":
                added[value["path"]] = base64.b64decode(value["content"])
            elif one["key"] == "lfsFile":
                added[value["path"]] = hub.objects[value["oid"]]
        hub.repositories[name] |= added
        hub.commits.append(name)
        return JSONResponse({"commitOid": sha(name), "commitUrl": f"{hub.url}/{name}/commit/{sha(name)}"})

    async def resolve(request: Request) -> Response:
        files, path = hub.repositories.get(name_of(request)), request.path_params["path"]
        if files is None or path not in files:
            return not_found("RepoNotFound" if files is None else "EntryNotFound")
        data = files[path]
        headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": sha(name_of(request))}
        if (asked := request.headers.get("range")) is None:
            return Response(data, headers=headers)
        first, last = (int(text) for text in asked.removeprefix("bytes=").split("-"))
        part = data[first : last + 1]
        headers["Content-Range"] = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
        return Response(part, 206, headers=headers)

    model, repository = "/api/models/{user}/{name}", "/{user}/{name}"
    routes = [
        Route("/api/whoami-v2", whoami),
        Route("/api/repos/create", create, methods=["POST"]),
        Route("/api/validate-yaml", validate, methods=["POST"]),
        Route(f"{model}/revision/{{revision}}", info),
        Route(f"{model}/tree/{{revision}}/{{path:path}}", tree),
        Route(f"{model}/tree/{{revision}}", tree),
        Route(f"{model}/paths-info/{{revision}}", paths_info, methods=["POST"]),
        Route(f"{model}/preupload/{{revision}}", preupload, methods=["POST"]),
        Route(f"{model}/commit/{{revision}}", commit, methods=["POST"]),
        Route(model, info),
        Route("/{user}/{name}.git/info/lfs/objects/batch", batch, methods=["POST"]),
        Route("/lfs/{oid}", put, methods=["PUT"]),
        Route("/verify", verify, methods=["POST"]),
        Route(f"{repository}/resolve/{{revision}}/{{path:path}}", resolve, methods=["GET", "HEAD"]),
    ]
    app = Starlette(routes=routes)

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            hub.asked.append(f"{scope['method']} {scope['path']}")
        await app(scope, receive, send)

    return noted  # type: ignore[return-value]
