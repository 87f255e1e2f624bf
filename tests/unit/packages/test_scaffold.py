"""Tests of new plugins and of runners added to them."""

import ast
import json
from pathlib import Path

import pytest
import yaml

from host_service.packages.component_adding import add_runner
from host_service.packages.errors import NotAPlugin, ScaffoldRefused
from host_service.packages.packing import PluginFolder
from host_service.packages.python_names import class_name, module_name, package_name
from host_service.packages.scaffold import default_author, languages, make_plugin
from host_service.supervisor.manifest import Command
from tests.unit.packages.folders import write_plugin


def made(folder: Path, name: str = "weather", author: str = "acme") -> PluginFolder:
    make_plugin(folder / name, name=name, author=author, language="python")
    return PluginFolder.read(folder / name)


def files(folder: Path) -> set[str]:
    return {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}


def test_new_plugin_has_all_it_needs(tmp_path: Path) -> None:
    plugin = made(tmp_path)
    assert plugin.manifest.plugin_id == "acme/weather"
    assert list(plugin.runners.runners) == ["default"]
    assert files(plugin.path) == {
        ".gitignore",
        "README.md",
        "components/agent_runner/default.yaml",
        "manifest.yaml",
        "requirements.txt",
        "tests/test_default.py",
        "weather/__init__.py",
        "weather/default.py",
        "weather/main.py",
    }
    assert [each.name for each in tmp_path.iterdir()] == ["weather"]
    test = (plugin.path / "tests" / "test_default.py").read_text()
    assert len([line for line in test.splitlines() if line]) < 10


@pytest.mark.parametrize(
    "name", ["2", "null", "yes", "1e3", "0x1", "json", "tests", "class", "a.b-c_d", "x" * 64]
)
def test_odd_names_make_plugins_that_can_be_read(name: str, tmp_path: Path) -> None:
    plugin = made(tmp_path, name, author=name)
    assert plugin.manifest.plugin_id == f"{name}/{name}"
    for path in plugin.path.rglob("*.py"):
        ast.parse(path.read_text())
        assert all(part.removesuffix(".py").isidentifier() for part in path.parts[-2:])


@pytest.mark.parametrize("name", ["", "Weather", "../up", "a b", ".hidden", "é", "x" * 65, "a/b"])
def test_name_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ScaffoldRefused, match="is not a name"):
        make_plugin(tmp_path / "new", name=name, author="acme", language="python")
    with pytest.raises(ScaffoldRefused, match="is not a name"):
        make_plugin(tmp_path / "new", name="weather", author=name, language="python")
    assert not list(tmp_path.iterdir())


def test_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "weather").mkdir()
    (tmp_path / "weather" / "mine").touch()
    with pytest.raises(ScaffoldRefused, match="not an empty folder"):
        made(tmp_path)
    assert files(tmp_path) == {"weather/mine"}
    (tmp_path / "weather" / "mine").unlink()
    assert made(tmp_path).manifest.plugin_id == "acme/weather"


def test_language_without_a_template_is_refused(tmp_path: Path) -> None:
    assert "python" in languages()
    with pytest.raises(ScaffoldRefused, match=r"there are .*python"):
        make_plugin(tmp_path / "x", name="x", author="acme", language="cobol")


def test_login_name_becomes_an_authors(monkeypatch: pytest.MonkeyPatch) -> None:
    for login, author in (("Ada.L", "ada.l"), ("-_x", "x"), ("ада", "me"), ("a b", "a-b")):
        monkeypatch.setenv("LOGNAME", login)
        assert default_author() == author


@pytest.mark.parametrize(
    ("name", "package", "module", "cls"),
    [
        ("help-desk", "help_desk", "help_desk", "HelpDesk"),
        ("json", "json_plugin", "json", "Json"),
        ("tests", "tests_plugin", "tests", "Tests"),
        ("main", "main", "main_runner", "Main"),
        ("class", "class_plugin", "class_runner", "Class"),
        ("none", "none", "none", "NoneRunner"),
        ("2nd", "plugin_2nd", "runner_2nd", "Runner2nd"),
        ("agent-runner", "agent_runner", "agent_runner", "AgentRunnerRunner"),
        ("result", "result", "result", "ResultRunner"),
    ],
)
def test_names_in_python(name: str, package: str, module: str, cls: str) -> None:
    assert (package_name(name), module_name(name), class_name(name)) == (package, module, cls)


def test_added_runner_is_in_manifest_and_code(tmp_path: Path) -> None:
    plugin = made(tmp_path)
    add_runner(plugin, "second-opinion")
    changed = add_runner(PluginFolder.read(plugin.path), "third")
    assert {each.relative_to(plugin.path).as_posix() for each in changed} == {
        "components/agent_runner/third.yaml",
        "manifest.yaml",
        "tests/test_third.py",
        "weather/main.py",
        "weather/third.py",
    }
    assert list(PluginFolder.read(plugin.path).runners.runners) == [
        "default",
        "second-opinion",
        "third",
    ]
    assert (plugin.path / "weather" / "main.py").read_text() == (
        '"""The plugin\'s process: what the host starts."""\n\n'
        "from runner_sdk import serve\n\n"
        "from weather.default import Default\n"
        "from weather.second_opinion import SecondOpinion\n"
        "from weather.third import Third\n\n"
        'if __name__ == "__main__":\n'
        "    serve(Default(), SecondOpinion(), Third())\n"
    )


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("serve()", "serve(Second())"),
        ("serve(max_concurrent_runs=3)", "serve(Second(), max_concurrent_runs=3)"),
        ("serve(Default(), tls=None)", "serve(Default(), Second(), tls=None)"),
        ("serve(*every)", "serve(*every, Second())"),
        ("serve(\n    Default(),  # été 天\n)", "serve(\n    Default(), Second(),  # été 天\n)"),
        ('x = "été"; serve(Default())', 'x = "été"; serve(Default(), Second())'),
        ("runner_sdk.serve(Default())", "runner_sdk.serve(Default(), Second())"),
    ],
)
def test_call_is_added_to_however_it_is_written(call: str, expected: str, tmp_path: Path) -> None:
    plugin = made(tmp_path)
    main = plugin.path / "weather" / "main.py"
    main.write_text(f"import runner_sdk\n\n{call}\n")
    add_runner(plugin, "second")
    assert main.read_text() == (
        f"import runner_sdk\nfrom weather.second import Second\n\n{expected}\n"
    )


@pytest.mark.parametrize(
    ("components", "expected"),
    [
        (
            "components:\n- components/agent_runner/default.yaml  # the first\n",
            (
                "components:\n- components/agent_runner/default.yaml  # the first\n"
                "- components/agent_runner/second.yaml\n"
            ),
        ),
        (
            "components: [components/agent_runner/default.yaml]",
            (
                "components: [components/agent_runner/default.yaml, "
                "components/agent_runner/second.yaml]"
            ),
        ),
        ("components: []\n", "components: [components/agent_runner/second.yaml]\n"),
        ("", "components:\n  - components/agent_runner/second.yaml\n"),
    ],
)
def test_manifest_is_added_to_however_it_is_written(
    components: str, expected: str, tmp_path: Path
) -> None:
    plugin = made(tmp_path)
    manifest = plugin.path / "manifest.yaml"
    head = manifest.read_text().partition("components:")[0] + "# mine\n"
    manifest.write_text(head + components)
    add_runner(PluginFolder.read(plugin.path), "second")
    assert manifest.read_text() == head + expected
    listed = yaml.safe_load(manifest.read_text())["components"]
    assert listed[-1] == "components/agent_runner/second.yaml"


@pytest.mark.parametrize(
    ("main", "told"),
    [
        ("import runner_sdk\n", "serve"),
        ("import a\nserve(1)\nserve(2)\n", "serve"),
        ("serve(1)\n", "no import"),
        ("import a\nserve(\n", "cannot be read"),
        ("from x import Second\nserve(Second())\n", "uses the name Second already"),
    ],
)
def test_code_that_is_not_understood_is_left_alone(main: str, told: str, tmp_path: Path) -> None:
    plugin = made(tmp_path)
    (plugin.path / "weather" / "main.py").write_text(main)
    before = files(plugin.path)
    with pytest.raises(ScaffoldRefused, match=told):
        add_runner(plugin, "second")
    assert files(plugin.path) == before
    assert (plugin.path / "weather" / "main.py").read_text() == main


def test_runner_that_is_there_is_not_added_again(tmp_path: Path) -> None:
    plugin = made(tmp_path)
    with pytest.raises(ScaffoldRefused, match="a runner named 'default' already"):
        add_runner(plugin, "default")
    (plugin.path / "weather" / "second.py").write_text("mine")
    with pytest.raises(ScaffoldRefused, match=r"second\.py is there already"):
        add_runner(plugin, "second")
    with pytest.raises(ScaffoldRefused, match="not a name"):
        add_runner(plugin, "../second")


def test_plugin_in_another_language_is_told_what_to_do(tmp_path: Path) -> None:
    plugin = PluginFolder.read(write_plugin(tmp_path / "weather"))
    with pytest.raises(ScaffoldRefused, match="that 'runmesh init' makes: go, python, typescript"):
        add_runner(plugin, "second")
    with pytest.raises(NotAPlugin):
        PluginFolder.read(tmp_path)


def made_in_go(folder: Path, name: str = "weather") -> PluginFolder:
    make_plugin(folder / name, name=name, author="acme", language="go")
    return PluginFolder.read(folder / name)


def test_new_plugin_in_go_has_all_it_needs(tmp_path: Path) -> None:
    plugin = made_in_go(tmp_path)
    own = {each for each in files(plugin.path) if not each.startswith("third_party/")}
    assert own == {
        ".gitignore",
        ".rmpkgignore",
        "README.md",
        "components/agent_runner/default.yaml",
        "default.go",
        "default_test.go",
        "go.mod",
        "go.sum",
        "main.go",
        "manifest.yaml",
    }
    assert list(plugin.runners.runners) == ["default"]
    run = plugin.manifest.run
    assert run == Command(
        ("./bin/weather",), build="go build -o 'bin/weather' .", test="go test ./..."
    )
    sdk = Path(__file__).parents[3] / "sdk" / "go"
    carried = plugin.path / "third_party" / "runmesh"
    assert (carried / "gen/runmesh/v1/run.pb.go").read_bytes() == (
        sdk / "gen/runmesh/v1/run.pb.go"
    ).read_bytes()
    assert not list(carried.rglob("*_test.go"))
    # What it requires is what the SDK requires, to the version.
    asked = set((plugin.path / "go.mod").read_text().replace(" // indirect", "").splitlines())
    needed = (sdk / "go.mod").read_text().replace(" // indirect", "").splitlines()
    assert {line for line in needed if line.startswith("\t")} <= asked


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("weather", "weather"),
        ("a.b-c_d", "a.b-c_d"),
        ("x.", "x"),
        ("con", "plugin-con"),
        ("2", "2"),
    ],
)
def test_names_of_modules_in_go(name: str, module: str, tmp_path: Path) -> None:
    plugin = made_in_go(tmp_path, name)
    first = (plugin.path / "go.mod").read_text().splitlines()[0]
    assert first == f"module example.com/{module}"


def test_added_runner_in_go_is_in_manifest_and_code(tmp_path: Path) -> None:
    plugin = made_in_go(tmp_path)
    changed = add_runner(plugin, "load-test")
    # A file that ends in _test.go, or in the name of a system, would not be part of the program.
    assert {each.relative_to(plugin.path).as_posix() for each in changed} == {
        "components/agent_runner/loadtest.yaml",
        "loadtest.go",
        "loadtest_test.go",
        "main.go",
        "manifest.yaml",
    }
    assert list(PluginFolder.read(plugin.path).runners.runners) == ["default", "load-test"]
    lines = [line.split() for line in (plugin.path / "main.go").read_text().splitlines()]
    assert ['"load-test":', "runLoadTest,"] in lines
    assert "func runLoadTest(" in (plugin.path / "loadtest.go").read_text()
    assert "func TestLoadTestSays" in (plugin.path / "loadtest_test.go").read_text()


@pytest.mark.parametrize(
    ("runners", "expected"),
    [
        ("map[string]runmesh.Runner{}", 'map[string]runmesh.Runner{"second": runSecond}'),
        (
            'map[string]runmesh.Runner{"a": b}',
            'map[string]runmesh.Runner{"a": b, "second": runSecond}',
        ),
    ],
)
def test_map_of_runners_in_go_is_added_to_however_it_is_written(
    runners: str, expected: str, tmp_path: Path
) -> None:
    plugin = made_in_go(tmp_path)
    main = plugin.path / "main.go"
    main.write_text(f"package main\n\nvar runners = {runners}\n")
    add_runner(plugin, "second")
    assert main.read_text() == f"package main\n\nvar runners = {expected}\n"


@pytest.mark.parametrize(
    ("main", "told"),
    [
        ("package main\n", "not exactly one"),
        ("map[string]runmesh.Runner{}\nmap[string]runmesh.Runner{}\n", "not exactly one"),
        ('map[string]runmesh.Runner{"a": func() {}}\n', "not exactly one"),
        ('map[string]runmesh.Runner{"a": runSecond}\n', "uses the name runSecond already"),
    ],
)
def test_go_code_that_is_not_understood_is_left_alone(main: str, told: str, tmp_path: Path) -> None:
    plugin = made_in_go(tmp_path)
    (plugin.path / "main.go").write_text(main)
    before = files(plugin.path)
    with pytest.raises(ScaffoldRefused, match=told):
        add_runner(plugin, "second")
    assert files(plugin.path) == before
    assert (plugin.path / "main.go").read_text() == main


def made_in_typescript(folder: Path, name: str = "weather") -> PluginFolder:
    make_plugin(folder / name, name=name, author="acme", language="typescript")
    return PluginFolder.read(folder / name)


def test_new_plugin_in_typescript_has_all_it_needs(tmp_path: Path) -> None:
    plugin = made_in_typescript(tmp_path)
    own = {each for each in files(plugin.path) if not each.startswith("vendor/")}
    assert own == {
        ".gitignore",
        ".rmpkgignore",
        "README.md",
        "components/agent_runner/default.yaml",
        "manifest.yaml",
        "package.json",
        "src/default.test.ts",
        "src/default.ts",
        "src/main.ts",
        "tsconfig.json",
    }
    assert list(plugin.runners.runners) == ["default"]
    run = plugin.manifest.run
    assert isinstance(run, Command)
    assert run.words == ("node", "dist/main.js")
    assert (bool(run.build), run.test) == (True, "node --test dist/*.test.js")
    sdk = Path(__file__).parents[3] / "sdk" / "typescript"
    carried = plugin.path / "vendor" / "runmesh-sdk"
    for name in ("src/run.ts", "src/gen/runmesh/v1/run_pb.ts", "package.json", "tsconfig.json"):
        assert (carried / name).read_bytes() == (sdk / name).read_bytes()
    assert not any("test" in path.parts for path in carried.rglob("*.ts"))
    # It is compiled by what the SDK is compiled by.
    asked = json.loads((plugin.path / "package.json").read_text())
    needed = json.loads((sdk / "package.json").read_text())
    assert asked["devDependencies"] == needed["devDependencies"]
    assert asked["dependencies"] == {"@runmesh/sdk": needed["version"]}
    assert asked["workspaces"] == ["vendor/runmesh-sdk"]


def test_added_runner_in_typescript_is_in_manifest_and_code(tmp_path: Path) -> None:
    plugin = made_in_typescript(tmp_path)
    changed = add_runner(plugin, "load.test")
    # A file that ends in .test.ts would be a test.
    assert {each.relative_to(plugin.path).as_posix() for each in changed} == {
        "components/agent_runner/load-test.yaml",
        "manifest.yaml",
        "src/load-test.test.ts",
        "src/load-test.ts",
        "src/main.ts",
    }
    add_runner(PluginFolder.read(plugin.path), "main")
    assert list(PluginFolder.read(plugin.path).runners.runners) == ["default", "load.test", "main"]
    assert (plugin.path / "src" / "main.ts").read_text() == (
        "/** The plugin's process: what the host starts. */\n"
        'import { readPlugin, serve } from "@runmesh/sdk";\n\n'
        'import { runDefault } from "./default.js";\n'
        'import { runLoadTest } from "./load-test.js";\n'
        'import { runMain } from "./main-runner.js";\n\n'
        "// The same files that the host reads say what the process serves.\n"
        "await serve(\n"
        '  readPlugin(new URL("..", import.meta.url), {\n'
        "    default: runDefault,\n"
        '    "load.test": runLoadTest,\n'
        "    main: runMain,\n"
        "  }),\n"
        ");\n"
    )


@pytest.mark.parametrize(
    ("runners", "expected"),
    [
        ("{}", "{ second: runSecond }"),
        ("{ a: b }", "{ a: b, second: runSecond }"),
        ("{ a: b, }", "{ a: b, second: runSecond }"),
        ("{\n    a,\n  }", "{\n    a,\n    second: runSecond,\n  }"),
    ],
)
def test_runners_in_typescript_are_added_to_however_they_are_written(
    runners: str, expected: str, tmp_path: Path
) -> None:
    plugin = made_in_typescript(tmp_path)
    main = plugin.path / "src" / "main.ts"
    main.write_text(f'import {{\n  x,\n}} from "y";\nconst p = readPlugin(".", {runners});\n')
    add_runner(plugin, "second")
    assert main.read_text() == (
        'import {\n  x,\n} from "y";\nimport { runSecond } from "./second.js";\n'
        f'const p = readPlugin(".", {expected});\n'
    )


@pytest.mark.parametrize(
    ("main", "told"),
    [
        ("await serve(plugin);\n", "has no import"),
        ('readPlugin(".", {});\n', "has no import"),
        ('import "x";\nreadPlugin(".", {});\nreadPlugin(".", {});\n', "not exactly one"),
        ('import "x";\nreadPlugin(".", { a: async function* () {} });\n', "not exactly one"),
        ('import "x";\nreadPlugin(".", { a: runSecond });\n', "uses the name runSecond already"),
    ],
)
def test_typescript_code_that_is_not_understood_is_left_alone(
    main: str, told: str, tmp_path: Path
) -> None:
    plugin = made_in_typescript(tmp_path)
    (plugin.path / "src" / "main.ts").write_text(main)
    before = files(plugin.path)
    with pytest.raises(ScaffoldRefused, match=told):
        add_runner(plugin, "second")
    assert files(plugin.path) == before
    assert (plugin.path / "src" / "main.ts").read_text() == main
