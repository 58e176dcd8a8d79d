"""Reading HTML: what a page says, without what frames it; encodings, and pages that are meant to hurt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.errors import HearthNetError
from hearthnet_rag.readers import read_document
from hearthnet_rag.readers.documents import HTML

PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "http://example.org/x.dtd">
<html lang="de-AT"><head><title>2.1. Der&#160;Brunnen</title><meta name="date" content="2022-03-04"/>
<style>p { color: red }</style></head><body>
<div id="banner">Buch laden</div><ul class="docnav top"><li>Weiter</li></ul>
<div class="section"><h2>2.1. Der <code>Brunnen</code></h2>
<p>Er  ist<br/>tief &amp; <b>kühl</b>.</p><div class="toc"><dl><dt>2.1.1</dt></dl></div>
<ul><li>Eimer</li><li><p>Seil</p></li></ul><ol><li>oben</li><li>unten</li></ol>
<table><tr><th>Was</th><th>Wie viel</th></tr><tr><td><p>Wasser</p></td><td>2 l</td></tr></table>
<pre>eins
  zwei</pre><script>alert(1)</script><h3> </h3><h3>Pumpe</h3>Zieht.</div>
<nav>Start</nav><footer>Ende</footer></body></html>"""


def body(html: str) -> str:
    return read_document(html.encode(), HTML).body


@pytest.mark.req("RAG-31", "RAG-34")
def test_a_page_without_its_frame() -> None:
    document = read_document(PAGE.encode(), "text/plain", "x.html")
    assert (document.title, document.language, document.date) == ("2.1. Der Brunnen", "de", "2022-03-04")
    assert document.media_type == HTML
    assert document.body == (
        "## 2.1. Der Brunnen\n\nEr ist\ntief & kühl.\n\n- Eimer\n\n- Seil\n\n1. oben\n\n2. unten\n\n"
        "Was | Wie viel\n\nWasser | 2 l\n\neins\n  zwei\n\n### Pumpe\n\nZieht."
    )
    assert [document.body[heading.start :].split("\n")[0] for heading in document.headings] == [
        "## 2.1. Der Brunnen",
        "### Pumpe",
    ]


@pytest.mark.req("RAG-34")
@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<body><p>Menu</p><main><p>Soup</p></main>", "Soup"),
        ("<p>Menu</p><article>Soup</article>", "Soup"),
        ("<article>One</article><article>Two</article>", "One\n\nTwo"),
        ("<div role='navigation'>Menu</div><div hidden>No</div><p aria-hidden='true'>No</p>Soup", "Soup"),
        ("<header>Top</header><section><header>Head</header>Soup</section>", "Head\n\nSoup"),
        (
            "<div class='menu'>It is all that there is on this page</div>",
            "It is all that there is on this page",
        ),
        ("<nav>All of it is navigation</nav>", "All of it is navigation"),
        ("<p>open <p>and <b>open <td>again", "open\n\nand open again"),
        ("<ul><li><ul><li>deep</ul></ul>", "- - deep"),
        ("<h2><div>In a</div> heading</h2>x", "## In a heading\n\nx"),
        ("a<noscript>no</noscript><template>no</template><!-- no -->b", "ab"),
        ("<dl><dt>Word<dd>Meaning</dl>", "Word\n\nMeaning"),
    ],
)
def test_what_is_text_and_what_is_frame(html: str, text: str) -> None:
    assert body(html) == text


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title>Soup | Cook</title><h1>Soup</h1>x", "Soup"),
        ("<title>Soup</title><h1>Cook</h1>x", "Soup"),
        ("<title>Cook</title><h1>Cook</h1><h1>Cook it</h1>", "Cook"),
        ("<h3>Only this</h3>x", "Only this"),
        ("no heading", "file"),
    ],
)
def test_titles(html: str, title: str) -> None:
    assert read_document(html.encode(), HTML, "file.html").title == title


@pytest.mark.req("RAG-34")
@pytest.mark.parametrize(
    "data",
    [
        "<html>Größe 12</html>".encode("utf-16"),
        "<meta charset=iso-8859-1><html>Größe 12".encode("latin-1"),
        "<meta http-equiv='Content-Type' content='text/html; charset=ISO-8859-15'>Größe 12".encode("latin-1"),
        "<?xml version='1.0' encoding='windows-1252'?><html>Größe 12</html>".encode("cp1252"),
        "<meta charset=nonsense>Größe 12".encode(),
        "\ufeff<html>Größe 12".encode(),
    ],
)
def test_declared_encodings(data: bytes) -> None:
    assert read_document(data, HTML).body.endswith("Größe 12")


@pytest.mark.req("RAG-35")
def test_depth_does_not_matter() -> None:
    assert body("<div>" * 3_000 + "deep") == "deep"


@pytest.mark.req("RAG-35")
@pytest.mark.parametrize(
    "html", ["<html></html>", "<script>x</script>", "<!doctype html><img src='/etc/passwd'>"]
)
def test_a_page_without_text(html: str) -> None:
    with pytest.raises(HearthNetError, match="has no text in it"):
        body(html)


@given(st.text(alphabet="<>/=\"'&; abdhilnoprtuv12", max_size=120))
def test_any_markup_is_a_document_or_refused(html: str) -> None:
    refused: HearthNetError | None = None
    try:
        document = read_document(html.encode(), HTML)
    except HearthNetError as error:
        refused = error
    if refused is not None:
        assert refused.code == "bad_request"
        assert refused.message in ("the document is empty", "the document has no text in it")
        return
    assert document.title.strip()
    assert all(heading.text in document.body[heading.start :] for heading in document.headings)
