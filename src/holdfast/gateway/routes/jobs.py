"""`/v1/jobs`: show a background job, and ask it to end."""

import re

from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.request import HttpRequest
from holdfast.gateway.http.router import STOP, AnyRoute, ApiCall, Route
from holdfast.gateway.server.tokens import Bearer
from holdfast.runtime.jobs.reports import JobReport
from holdfast.runtime.jobs.verbs import Viewer, unknown

_JOB = re.compile(r"j-[a-z2-7]{26}\Z")


class JobRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def routes(self) -> list[AnyRoute]:
        return [
            Route(
                method="GET", path="/v1/jobs/{job}", scope="read", handle=self.show,
                response=JobReport, id="showJob", summary="One background job", answer="complete",
            ),
            Route(
                method="POST", path="/v1/jobs/{job}/cancel", scope=STOP, handle=self.cancel,
                response=JobReport, problems=(409, 410),
                id="cancelJob", summary="Ask a background job to end",
                answer="recorded; the job ends, or is reported as running on",
            ),
        ]  # fmt: skip

    async def show(self, call: ApiCall[None]) -> JobReport:
        jobs = self._gateway.service.jobs
        return await jobs.show(_name(call.request), _viewer(call.bearer))

    async def cancel(self, call: ApiCall[None]) -> JobReport:
        jobs = self._gateway.service.jobs
        report = await jobs.cancel(_name(call.request), _viewer(call.bearer))
        self._gateway.drives.wake(report.session)
        return report


def _name(request: HttpRequest) -> str:
    name = request.path_parts["job"]
    if not _JOB.match(name):
        raise unknown(name)
    return name


def _viewer(bearer: Bearer) -> Viewer:
    return Viewer(
        person=bearer.person,
        audience=bearer.audience,
        boundary=bearer.boundary,
        may_all=bearer.is_admin,
    )
