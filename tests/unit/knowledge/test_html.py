"""HTML becomes what a reader of the page sees."""

import codecs

import pytest

from host_service.knowledge.document import ReadDocument
from host_service.knowledge.errors import DocumentUnreadable
from host_service.knowledge.html import read_html


def read(markup: str | bytes) -> ReadDocument:
    content = markup.encode() if isinstance(markup, str) else markup
    return read_html(content, charset="", most_characters=1_000_000)


@pytest.mark.parametrize(
    "unseen",
    [
        "<script>unseen</script>",
        "<style>unseen</style>",
        "<nav><a>unseen</a></nav>",
        "<p hidden>unseen</p>",
        "<p aria-hidden='true'>unseen</p>",
        "<div style='color: red; DISPLAY : none'><p>unseen</p></div>",
        "<template>unseen</template>",
        "<noscript>unseen</noscript>",
        "<!-- unseen -->",
        "<div role=navigation>unseen</div>",
        "<select><option>unseen</select>",
    ],
)
def test_what_nobody_sees_is_left_out(unseen: str) -> None:
    assert read(f"<body><p>before</p>{unseen}<p>after</p>").text.split() == ["before", "after"]


def test_parts_stand_under_their_headings_and_the_page_has_a_title() -> None:
    document = read(
        "<title>My &amp; page</title><h1>One <em>two</em></h1><p>a</p><h3>Three</h3><p>b</p>"
    )
    assert document.title == "My & page"
    assert [part.headings for part in document.parts] == [("One two",), ("One two", "Three")]
    assert document.text == "One two\n\na\n\nThree\n\nb\n\n"


def test_blank_space_is_as_on_the_page() -> None:
    assert read("<p>a\n   b&nbsp;c<br>d</p>").text.strip() == "a b c\nd"
    assert read("<p>a</p>b<div>c</div>").text.split("\n\n") == ["a", "b", "c", ""]


def test_preformatted_text_is_kept_as_it_stands() -> None:
    assert "if x:\n    y()\n" in read("<pre><code>if x:\n    y()\n</code></pre>").text


def test_tables_and_lists_are_read_row_by_row() -> None:
    document = read("<table><tr><th>a<th>b<tr><td>1<td>2</table><ul><li>x<li>y<ul><li>z</ul></ul>")
    assert document.text.split("\n") == ["a | b", "1 | 2", "", "- x", "- y", "- z", "", ""]


@pytest.mark.parametrize(
    "content",
    [
        "<meta charset='gb18030'><p>你好".encode("gb18030"),
        "<meta http-equiv=Content-Type content='text/html; charset=GBK'><p>你好".encode("gbk"),
        codecs.BOM_UTF16_LE + "<meta charset=latin-1><p>你好".encode("utf-16-le"),
        "<meta charset='utf-16'><p>你好".encode(),
        "<p>你好".encode(),
    ],
    ids=["meta", "http-equiv", "a mark wins", "what cannot be", "nothing said"],
)
def test_encoding_is_what_the_mark_or_the_page_says(content: bytes) -> None:
    assert read(content).text.strip() == "你好"


def test_page_in_no_known_encoding_is_refused() -> None:
    with pytest.raises(DocumentUnreadable, match="UTF-8"):
        read(b"<p>\xff\xfe\xfd")


def test_nesting_as_deep_as_it_likes_is_read() -> None:
    assert read("<div>" * 20_000 + "deep").text.strip() == "deep"
