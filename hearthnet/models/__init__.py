"""Shared parts of services with models: pinned files, and connections to models' servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet.core.lazy_import import lazy

if TYPE_CHECKING:
    from hearthnet.models.error_mapping import of_error as reported_error
    from hearthnet.models.error_mapping import of_error_in_stream as streamed_error
    from hearthnet.models.health import Watch as ServerWatch
    from hearthnet.models.http_client import Body as ResponseBody
    from hearthnet.models.http_client import HttpRequest, ModelHttpClient
    from hearthnet.models.llama import checked as check_llama
    from hearthnet.models.llama import library as llama_library
    from hearthnet.models.llama import opened as open_llama
    from hearthnet.models.pinned_files import FileStamp, Pin
    from hearthnet.models.pinned_files import look as file_stamp
    from hearthnet.models.urls import base as base_url
    from hearthnet.models.urls import is_near, without_login
else:
    __getattr__ = lazy(
        __name__,
        {
            "hearthnet.models.error_mapping": "reported_error=of_error streamed_error=of_error_in_stream",
            "hearthnet.models.health": "ServerWatch=Watch",
            "hearthnet.models.http_client": "HttpRequest ModelHttpClient ResponseBody=Body",
            "hearthnet.models.llama": "check_llama=checked llama_library=library open_llama=opened",
            "hearthnet.models.pinned_files": "FileStamp Pin file_stamp=look",
            "hearthnet.models.urls": "base_url=base is_near without_login",
        },
    )

__all__ = [
    "FileStamp",
    "HttpRequest",
    "ModelHttpClient",
    "Pin",
    "ResponseBody",
    "ServerWatch",
    "base_url",
    "check_llama",
    "file_stamp",
    "is_near",
    "llama_library",
    "open_llama",
    "reported_error",
    "streamed_error",
    "without_login",
]
