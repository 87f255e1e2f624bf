"""Markdown becomes what a reader of it sees, and each part knows its headings."""

from host_service.knowledge.document import ReadDocument
from host_service.knowledge.markdown import read_markdown


def read(source: str) -> ReadDocument:
    return read_markdown(source.encode(), charset="", most_characters=1_000_000)


def parts_of(document: ReadDocument) -> list[tuple[tuple[str, ...], str]]:
    ends = [part.position for part in document.parts[1:]] + [len(document.text)]
    return [
        (part.headings, document.text[part.position : end].strip())
        for part, end in zip(document.parts, ends, strict=True)
    ]


def test_parts_stand_under_their_headings() -> None:
    document = read("before\n\n# A *b*\n\none\n\n## C\n\ntwo\n\nD\n=\n\nthree\n")
    assert parts_of(document) == [
        ((), "before"),
        (("A b",), "A b\n\none"),
        (("A b", "C"), "C\n\ntwo"),
        (("D",), "D\n\nthree"),
    ]
    assert document.title == "A b"


def test_heading_behind_a_heading_makes_no_part_of_its_own() -> None:
    document = read("# A\n\n## B\n\ntext\n\n## C\n")
    assert parts_of(document) == [(("A", "B"), "A\n\nB\n\ntext"), (("A", "C"), "C")]


def test_links_and_pictures_are_their_texts() -> None:
    document = read('See [the **guide**](https://x.test "t") and ![a cat](cat.png).\n')
    assert document.text.strip() == "See the guide and a cat."


def test_code_is_kept_as_it_stands() -> None:
    document = read("Call `run()`:\n\n```python\nif x:\n    # Not a heading\n    run()\n```\n")
    assert "Call run():" in document.text
    assert "if x:\n    # Not a heading\n    run()\n" in document.text
    assert [part.headings for part in document.parts] == [()]


def test_lists_keep_their_bullets_numbers_and_depth() -> None:
    document = read("3. three\n   - deep\n     more\n4. four\n")
    assert document.text.strip() == "3. three\n  - deep\nmore\n4. four"


def test_tables_are_read_row_by_row() -> None:
    document = read("| a | b |\n|---|---|\n| 1 | `x` |\n")
    assert document.text.strip() == "a | b\n1 | x"


def test_markup_in_markdown_is_read_as_a_page() -> None:
    document = read("<div>\n<script>bad()</script>\n<b>good</b>\n</div>\n\na <i>b</i> 1 < 2\n")
    assert "bad" not in document.text
    assert "good" in document.text
    assert "1 < 2" in document.text
    assert "<" not in document.text.replace("1 < 2", "")


def test_front_matter_gives_the_title_and_no_text() -> None:
    document = read('---\ntitle: "The guide"\ntags: [x]\n---\nText.\n')
    assert document.title == "The guide"
    assert document.text.strip() == "Text."


def test_rule_at_the_beginning_is_no_front_matter() -> None:
    assert read("---\n\nText.\n").text.strip() == "Text."


def test_nesting_has_an_end() -> None:
    read("> " * 100_000 + "x")
    read("- " * 100_000 + "x")
