"""What operators declared, as it is in force: a view of the catalogue, replaced whole on a change.

Changes are planned first, against what is stored: everything that will not do is told at once, and
then one transaction stores all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from host_service.agents.agent import Agent
from host_service.agents.binding import Binding, Target
from host_service.agents.changes import Change, Outcome, change_of
from host_service.agents.config_schema import ConfigSchema
from host_service.agents.declared import Declared
from host_service.agents.follow_up import RunnerKind
from host_service.agents.own_choice import DEFAULT_AGENT_ID, with_own_model
from host_service.agents.resolution import BindingIndex, Found, find_tie
from host_service.agents.sealing import SealedAgents
from host_service.agents.selectors import MODEL, choose_model, release_model
from host_service.authorization.declared_keys import KeyPlan
from host_service.catalogue.documents import item_of
from host_service.catalogue.model import CHAT, Model
from host_service.catalogue.secret_plan import SecretPlan
from host_service.catalogue.shelf import Shelf
from host_service.errors import BindingConflict, Conflict, FieldFault, InvalidArgument, NotFound
from stores.catalogue import Catalogue
from stores.errors import RevisionConflict
from stores.keys import ApiKeys
from stores.records import AgentRecord, BindingRecord, CatalogueItem, CatalogueKind
from stores.secrets import SecretChange, Secrets

DEFAULT_BINDING_ID = "default-messages"

# Another host may change the catalogue between the look at it and the write.
_ATTEMPTS = 5


class AgentDirectory:
    """Answers which agent an event reaches, and takes changes.

    Args:
        catalogue: Where what is declared is stored.
        secrets: Where its secrets are.
        keys: Where API keys are.
        clock: Tells the time.
        schema_of: Gives the configuration schema of a runner; None for one that is not known. An
            agent of an unknown runner is saved as it is, and checked when it runs.
        kind_of: Tells what a runner can do about a busy session; likewise.
        on_reload: Called whenever everything was read again.
        offered: Gives the models that the host has beside those of the catalogue, best first.
    """

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        secrets: Secrets,
        keys: ApiKeys,
        clock: Callable[[], datetime],
        schema_of: Callable[[str], ConfigSchema | None] = lambda _runner_id: None,
        kind_of: Callable[[str], RunnerKind | None] = lambda _runner_id: None,
        on_reload: Callable[[], None] = lambda: None,
        offered: Callable[[Mapping[str, Model]], Iterable[Model]] = lambda _stored: (),
    ) -> None:
        self._catalogue = catalogue
        self._secrets = secrets
        self._keys = keys
        self._clock = clock
        self._schema_of = schema_of
        self._kind_of = kind_of
        self._on_reload = on_reload
        self._offered = offered
        self._sealed = SealedAgents(secrets=secrets, schema_of=schema_of)
        # What is checked together must be written before the next is checked.
        self._changing = asyncio.Lock()
        self._agents: Mapping[str, Agent] = {}
        self._bindings: Mapping[str, Binding] = {}
        self._index = BindingIndex(())
        self._stored = Shelf()
        self._shelf = Shelf()
        # The first model of all, while the default agent's runner was not known.
        self._awaiting = ""

    @property
    def agents(self) -> Mapping[str, Agent]:
        """All agents by id."""
        return self._agents

    @property
    def bindings(self) -> Mapping[str, Binding]:
        """All bindings by id."""
        return self._bindings

    @property
    def shelf(self) -> Shelf:
        """All models, tool servers, knowledge bases, policies and settings of plugins.

        Models that the host offers of itself are among them.
        """
        return self._shelf

    async def reload(self) -> None:
        """Read everything again."""
        agents = await self._sealed.read(await self._catalogue.list_agents())
        bindings = [_binding(record) for record in await self._catalogue.list_bindings()]
        self._stored = Shelf.of(await self._catalogue.list_items())
        self._shelf = self._with_offered(self._stored)
        self._agents = {agent.id: agent for agent in agents}
        self._bindings = {binding.id: binding for binding in bindings}
        # A disabled agent answers nothing: for its bindings to win and then fail would hide wider
        # ones.
        enabled = {agent.id for agent in agents if agent.enabled}
        self._index = BindingIndex(binding for binding in bindings if binding.agent_id in enabled)
        self._on_reload()

    async def settle(self) -> None:
        """Seal of every agent what is secret, and no more, as far as its runner is known.

        To be called before agents are used, for those that were stored before values were sealed,
        and when runners are known, for those that were stored before theirs was.
        """
        async with self._changing:
            await self.reload()
            ids = [each for each in sorted(self._agents) if not self._sealed.is_settled(each)]
            if ids:
                agents, sealed = self._written(self._agents[each] for each in ids)
                await self._catalogue.apply(agents, [], secrets=sealed)
                await self.reload()

    async def ensure_default(self, runner_id: str) -> None:
        """On the first start, create one agent on this runner, with a binding for every message."""
        if await self._catalogue.revision() == 0:
            agent = Agent(id=DEFAULT_AGENT_ID, name="Default", runner_id=runner_id)
            binding = Binding(
                id=DEFAULT_BINDING_ID, agent_id=agent.id, event_types=("message.received",)
            )
            await self.apply(Declared.of([agent], [binding]))

    def resolve(self, target: Target) -> tuple[Binding, Agent]:
        """Return the binding and agent that answer an event.

        Raises:
            NoBinding, BindingConflict: As `find`.
        """
        found, agent = self.find(target)
        return found.binding, agent

    def find(self, target: Target) -> tuple[Found, Agent]:
        """Return the binding that answers an event, what it won over, and its agent.

        Raises:
            NoBinding, BindingConflict: As `BindingIndex.find`.
        """
        found = self._index.find(target)
        return found, self._agents[found.binding.agent_id]

    def named(self, agent_id: str) -> Agent:
        """Return the agent that a caller names.

        Raises:
            NotFound: It is unknown or disabled.
        """
        agent = self._agents.get(agent_id)
        if agent is None or not agent.enabled:
            raise NotFound("enabled agent", agent_id)
        return agent

    def _with_offered(self, stored: Shelf) -> Shelf:
        return stored.with_models(self._offered(stored.models))

    def models_of(self, agent: Agent) -> Sequence[str]:
        """Return the ids of the models that an agent's runs ask for, none of them twice."""
        schema = self._schema_of(agent.runner_id)
        if schema is not None:
            agent = with_own_model(agent, self._shelf, schema)
        named = Declared.of([agent]).named(self._schema_of)
        return list(dict.fromkeys(it.name for _, it in named if it.kind == MODEL))

    async def apply(self, declared: Declared, *, dry_run: bool = False) -> Outcome:
        """Have what is declared, all or none, and say what changed.

        Raises:
            InvalidArgument: Objects break rules; every fault of each of them is named.
            BindingConflict: Two bindings would match alike.
            Conflict: Others changed the catalogue each time before this was done.
        """
        async with self._changing:
            for _ in range(_ATTEMPTS):
                with suppress(RevisionConflict):
                    return await self._apply(declared, dry_run=dry_run)
        raise Conflict("others change the catalogue all the time: apply again")

    async def _apply(self, declared: Declared, *, dry_run: bool) -> Outcome:
        # Read before all else: whatever another host changes from here on is noticed.
        revision = await self._catalogue.revision()
        await self.reload()
        secrets = await SecretPlan(self._secrets).add(
            {**declared.tool_servers, **declared.plugins}, declared.secrets
        )
        keys = KeyPlan(await self._keys.list(), now=self._clock())
        for path, key in declared.keys.items():
            keys.add(key, path)
        self._check(declared, [*secrets.faults, *keys.faults])
        plan = self._plan(declared, secrets)
        if not dry_run:
            agents, sealed = self._written(plan.agents)
            await self._catalogue.apply(
                agents,
                [_binding_record(binding) for binding in plan.bindings],
                plan.items,
                secrets=[*secrets.changes, *sealed],
                keys=keys.records,
                expected_revision=revision,
            )
            await self.reload()
        return Outcome(
            (*plan.changes, *keys.changes), declared.warnings(plan.shelf, self._schema_of)
        )

    def _plan(self, declared: Declared, secrets: SecretPlan) -> _Plan:
        there = Shelf.of([*self._stored_items(), *map(item_of, declared.items())])
        plan = _Plan(self._with_offered(there))
        for thing in declared.items():
            before = self._stored.get(thing.KIND, thing.id)
            told = secrets.fields(thing.KIND, thing.id)
            if plan.note(change_of(thing.KIND, before, thing, told)):
                plan.items.append(item_of(thing))
        for agent in (*declared.agents.values(), *self._filled_default(declared)):
            change = change_of("agent", self._agents.get(agent.id), agent)
            if plan.note(change) or not self._sealed.is_settled(agent.id):
                plan.agents.append(agent)
        for binding in declared.bindings.values():
            if plan.note(change_of("binding", self._bindings.get(binding.id), binding)):
                plan.bindings.append(binding)
        return plan

    def _written(
        self, agents: Iterable[Agent]
    ) -> tuple[Sequence[AgentRecord], Sequence[SecretChange]]:
        """Return what is to be stored of agents, and what of their secret values."""
        records: list[AgentRecord] = []
        changes: list[SecretChange] = []
        for agent in agents:
            record, sealed = self._sealed.write(agent)
            records.append(record)
            changes += sealed
        return records, changes

    def _stored_items(self) -> Iterator[CatalogueItem]:
        return map(item_of, self._stored.things())

    def _filled_default(self, declared: Declared) -> Iterator[Agent]:
        """Yield the agent `default` with its first model, if that is the host's first one."""
        default = self._agents.get(DEFAULT_AGENT_ID)
        first = next((each for each in declared.models.values() if each.kind == CHAT), None)
        has_one = any(each.kind == CHAT for each in self._stored.models.values())
        if default is None or first is None or has_one or default.id in declared.agent_ids:
            return
        yield from self._choosing(default, first.id)

    def _choosing(self, agent: Agent, model_id: str) -> Iterator[Agent]:
        schema = self._schema_of(agent.runner_id)
        self._awaiting = model_id if schema is None else ""
        if schema is not None:
            config_json = choose_model(schema, agent.config_json, model_id)
            if config_json is not None:
                yield replace(agent, config_json=config_json)

    async def fill_default(self) -> None:
        """Give the default agent the first model, if its runner was not known when that came."""
        async with self._changing:
            default = self._agents.get(DEFAULT_AGENT_ID)
            model = self._stored.models.get(self._awaiting)
            if default is not None and model is not None:
                filled, sealed = self._written(self._choosing(default, model.id))
                await self._catalogue.apply(filled, [], secrets=sealed)
                await self.reload()

    def _check(self, declared: Declared, faults: Sequence[FieldFault]) -> None:
        found = [
            *declared.faults,
            *_repeated(declared.agents),
            *_repeated(declared.bindings),
            *declared.reference_faults(frozenset(self._agents)),
            *declared.runner_faults(self._schema_of, self._kind_of),
            *faults,
        ]
        if found:
            raise InvalidArgument(found)
        merged = {**self._bindings, **{each.id: each for each in declared.bindings.values()}}
        tie = find_tie(list(merged.values()))
        if tie is not None:
            raise BindingConflict([binding.id for binding in tie])

    async def change_agent(self, agent_id: str, change: Callable[[Agent], Agent]) -> Agent:
        """Change one agent by what it is now, and return it as it is then.

        Args:
            agent_id: Which.
            change: Makes the changed agent of the one there is.

        Raises:
            NotFound: There is none.
            InvalidArgument: The changed one breaks rules.
            Conflict: As `apply`.
        """
        async with self._changing:
            for _ in range(_ATTEMPTS):
                await self.reload()
                if agent_id not in self._agents:
                    raise NotFound("agent", agent_id)
                changed = change(self._agents[agent_id])
                with suppress(RevisionConflict):
                    await self._apply(Declared.of([changed]), dry_run=False)
                    return changed
        raise Conflict("others change the catalogue all the time: try again")

    async def delete_agent(self, agent_id: str) -> bool:
        """Remove an agent and its bindings; return whether there was one."""
        async with self._changing:
            for binding in await self._catalogue.list_bindings(agent_id):
                await self._catalogue.delete_binding(binding.id)
            existed = await self._catalogue.delete_agent(agent_id)
            await self.reload()
        return existed

    async def delete_item(self, kind: CatalogueKind, id: str) -> bool:
        """Remove a model, tool server, knowledge base, policy or settings of a plugin.

        Returns:
            Whether there was one.
        """
        async with self._changing:
            existed = await self._catalogue.delete_item(kind, id)
            await self.reload()
        return existed

    async def delete_model(self, model_id: str, *, unless_selected: bool) -> bool:
        """Remove a model; the default agent, if it has no other, has none then.

        Args:
            model_id: Which.
            unless_selected: Leave it where an agent or a knowledge base selects it.

        Returns:
            Whether there was one.

        Raises:
            Conflict: It was left; the message names who selects it.
        """
        async with self._changing:
            await self.reload()
            selecting = self._selecting(model_id) if unless_selected else ()
            if model_id in self._stored.models and selecting:
                raise Conflict(f"the model {model_id!r} is selected by {', '.join(selecting)}")
            existed = await self._catalogue.delete_item(CatalogueKind.MODEL, model_id)
            released, sealed = self._written(self._released_default(model_id) if existed else ())
            await self._catalogue.apply(released, [], secrets=sealed)
            await self.reload()
        return existed

    def _selecting(self, model_id: str) -> Sequence[str]:
        there = Declared(agents=self._agents, knowledge_bases=self._stored.knowledge_bases)
        named = there.named(self._schema_of)
        return list(
            dict.fromkeys(who for who, it in named if (it.kind, it.name) == (MODEL, model_id))
        )

    def _released_default(self, model_id: str) -> Iterator[Agent]:
        default = self._agents.get(DEFAULT_AGENT_ID)
        schema = None if default is None else self._schema_of(default.runner_id)
        if default is not None and schema is not None:
            config_json = release_model(schema, default.config_json, model_id)
            if config_json is not None:
                yield replace(default, config_json=config_json)

    async def grant_tools(
        self, agent_id: str, *, grant: Iterable[str], withdraw: Iterable[str]
    ) -> tuple[tuple[str, ...], bool]:
        """Change which tools an agent's policy grants, and nothing else of it.

        Returns:
            What it grants now, and whether that is other than it was.

        Raises:
            NotFound: There is no such agent.
            InvalidArgument, Conflict: As `apply`.
        """
        agent = self._agents.get(agent_id)
        if agent is None:
            raise NotFound("agent", agent_id)
        gone = frozenset(withdraw)
        kept = dict.fromkeys(each for each in (*agent.tools, *grant) if each not in gone)
        tools = tuple(kept)
        if tools != agent.tools:
            await self.apply(Declared.of([replace(agent, tools=tools)]))
        return tools, tools != agent.tools

    async def delete_binding(self, binding_id: str) -> bool:
        """Remove a binding; return whether there was one."""
        async with self._changing:
            existed = await self._catalogue.delete_binding(binding_id)
            await self.reload()
        return existed


@dataclass(slots=True)
class _Plan:
    """What is to be written, and told of.

    What is unchanged may yet be written differently: it stays the text it was.
    """

    shelf: Shelf
    items: list[CatalogueItem] = field(default_factory=list)
    agents: list[Agent] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def note(self, change: Change) -> bool:
        """Keep what becomes of an object; return whether it must be written."""
        self.changes.append(change)
        return change.kind != "unchanged"


def _repeated(items: Mapping[str, Agent | Binding]) -> list[FieldFault]:
    seen: set[str] = set()
    faults = []
    for path, item in items.items():
        if item.id in seen:
            faults.append(FieldFault(f"{path}.id", "unique in the request", f"{item.id!r} twice"))
        seen.add(item.id)
    return faults


def _binding(record: BindingRecord) -> Binding:
    return Binding.from_document(
        record.document,
        id=record.id,
        agent_id=record.agent_id,
        enabled=record.enabled,
        revision=record.revision,
    )


def _binding_record(binding: Binding) -> BindingRecord:
    return BindingRecord(
        id=binding.id,
        agent_id=binding.agent_id,
        document=binding.to_document(),
        enabled=binding.enabled,
    )
