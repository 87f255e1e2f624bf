"""AdminService's calls about models: what they are, how they do, and which of them go."""

from __future__ import annotations

from runmesh.admin.v1 import admin_pb2, models_pb2

from host_service import wire_catalogue
from host_service.admin_catalogue import CatalogueCalls
from host_service.catalogue.model import Model
from host_service.errors import NotFound
from host_service.host_models import HostModels
from host_service.interceptors import Context
from host_service.model_trials import ModelTrials
from stores.secrets import SecretOwner


class ModelCalls(CatalogueCalls):
    """Decodes, does one thing, encodes. A part of `AdminServicer`, which gives it what it needs.

    Attributes:
        _trials: Tries models.
        _own_models: Knows the models that the host offers of itself.
    """

    _trials: ModelTrials
    _own_models: HostModels

    async def GetModel(
        self, request: admin_pb2.GetModelRequest, context: Context
    ) -> admin_pb2.GetModelResponse:
        """Read one model."""
        self._check.require(request)
        return admin_pb2.GetModelResponse(model=await self._model(self._found(request.model_id)))

    async def ListModels(
        self, request: admin_pb2.ListModelsRequest, context: Context
    ) -> admin_pb2.ListModelsResponse:
        """List models by id."""
        models, token = self._page(request, self._directory.shelf.models)
        return admin_pb2.ListModelsResponse(
            models=[await self._model(each) for each in models], next_page_token=token
        )

    async def TestModel(
        self, request: models_pb2.TestModelRequest, context: Context
    ) -> models_pb2.TestModelResponse:
        """Try a model."""
        self._check.require(request)
        return await self._trials.attempt(self._found(request.model_id), request.text)

    async def DeleteModel(
        self, request: admin_pb2.DeleteModelRequest, context: Context
    ) -> admin_pb2.DeleteModelResponse:
        """Remove a model."""
        self._check.require(request)
        with self._audit.watched("DeleteModel", f"model {request.model_id}"):
            existed = await self._directory.delete_model(
                request.model_id, unless_selected=request.unless_selected
            )
        return admin_pb2.DeleteModelResponse(existed=existed)

    def _found(self, model_id: str) -> Model:
        model = self._directory.shelf.models.get(model_id)
        if model is None:
            raise NotFound("model", model_id)
        return model

    async def _model(self, model: Model) -> admin_pb2.Model:
        names = await self._secrets.names(SecretOwner(Model.KIND, model.id))
        has_api_key = Model.API_KEY in names or self._own_models.has_key(model)
        return wire_catalogue.model_message(model, has_api_key=has_api_key)
