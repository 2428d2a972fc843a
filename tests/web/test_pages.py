"""The built pages as the server gives them: files by name, and the start page for every path of the application."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.web import problems, static_files


@pytest.fixture
def pages(tmp_path: Path) -> static_files.StaticFiles:
    (tmp_path / "index.html").write_text("<!doctype html>start")
    (tmp_path / "app.js").write_text("let a = 1;")
    return static_files.StaticFiles(tmp_path)


def answer(pages: static_files.StaticFiles, path: str, tag: str = "") -> tuple[int, bytes]:
    response = pages.response(path, accept_encoding="", if_none_match=tag)
    return response.status_code, bytes(response.body)


@pytest.mark.parametrize("path", ["/", "/fleet", "/nodes/gpu-1", "/nodes/gpu-1.rack.example.com"])
def test_paths_of_the_application_get_the_start_page(
    pages: static_files.StaticFiles, path: str
) -> None:
    assert answer(pages, path) == (200, b"<!doctype html>start")


def test_files_are_served_by_name_and_once(pages: static_files.StaticFiles) -> None:
    assert answer(pages, "/app.js") == (200, b"let a = 1;")
    tag = pages.response("/app.js", accept_encoding="", if_none_match="").headers["ETag"]
    assert answer(pages, "/app.js", tag) == (304, b"")


@pytest.mark.parametrize("path", ["/old.js", "/robots.txt"])
def test_files_that_are_not_there_are_not_the_start_page(
    pages: static_files.StaticFiles, path: str
) -> None:
    with pytest.raises(problems.Refusal, match="there is no"):
        answer(pages, path)


def test_nothing_outside_the_directory_is_served(tmp_path: Path) -> None:
    inside = tmp_path / "static"
    inside.mkdir()
    (inside / "index.html").write_text("start")
    (tmp_path / "secret").write_text("secret")
    assert answer(static_files.StaticFiles(inside), "/../secret") == (200, b"start")


def test_an_installation_without_pages_says_so(tmp_path: Path) -> None:
    status, body = answer(static_files.StaticFiles(tmp_path), "/")
    assert status == 200
    assert b"not part of this installation" in body
