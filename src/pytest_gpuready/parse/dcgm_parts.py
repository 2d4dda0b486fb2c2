"""What a `dcgmi diag` pass says of every part: passed, failed or not measured, and whom to suspect.

A test failed if its summary or any result says so; a GPU is blamed only where an error stands beside it. A Skip, a
null, an absent result and a status that cannot be read are not measured. An error beside a Pass counts like any
other, also one that was suppressed. Errors weigh as our table says, not as DCGM grades them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from pytest_gpuready.parse.dcgm_errors import HARDWARE, UNMEASURED, Meaning, meaning
from pytest_gpuready.parse.dcgm_messages import error_id, gpu_of
from pytest_gpuready.parse.dcgm_run import GPU_TESTS, DiagError, DiagPass, EntityResult, Status, TestRun

_NVLINK_DOWN = 14
_OF_THE_NODE = ("nccl_tests",)
"""Tests that may have one result for the node; a Pass of any other needs the results of its GPUs."""
_BAD = (Status.FAIL, Status.WARN)
_AGAIN = "run the test again on all GPUs"
_ALLOW = "allow the test, or use a configuration that knows this GPU"
_CLEAR = "clear the error that is named, then run it again"
_NO_NVLINK = "diagnostic configuration: NVLink is not fitted (0 links expected), so no NVLink or GPU fault is shown"
_NVLINK_OFF = "run pcie again with its NVLink check off (-p pcie.test_nvlink_status=false), or with a newer DCGM"
_CONFIGURATION = "diagnostic configuration (GPU not in DCGM's SKU file, or is_allowed false)"
_HIDDEN = "error suppressed by --ignoreErrorCodes"
_UNBLAMED = "no error names this part: DCGM fails all of them together"


class Says(Enum):
    """What a test says of a part."""

    PASSED = "passed"
    FAILED = "failed"
    UNMEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """One test on one part of one pass.

    `part` is "GPU 3", "all GPUs" (tables up to 3.x), or "" for the test as a whole; `gpu` is the number where it is
    one GPU. `printed` is DCGM's word, None where there was none that can be read.
    """

    test: TestRun
    part: str
    says: Says
    printed: str | None
    gpu: int | None = None
    suspect: str = ""
    remedy: str = ""
    errors: tuple[DiagError, ...] = ()
    info: tuple[str, ...] = ()
    nvlink_fitted: bool = True

    @property
    def blames_hardware(self) -> bool:
        """Whether it failed by an error that means a broken part rather than a setting."""
        known = [meaning_of(error) for error in self.errors]
        counted = [one for one in known if self.nvlink_fitted or one.id != _NVLINK_DOWN]
        return self.says is Says.FAILED and any(one.weight == HARDWARE for one in counted)


def meaning_of(error: DiagError) -> Meaning:
    """What an error means, by its id, or by its words where the format has no ids."""
    return meaning(error.id if error.id is not None else error_id(error.text))


def named(error: DiagError, part: str) -> str:
    """The part that an error is about: the one it stands at, or else the GPU that its words name."""
    if part and not part.startswith("all "):
        return part
    number = gpu_of(error.text)
    return f"GPU {number}" if number is not None else part


def part_results(one: DiagPass, *, nvlink_fitted: bool = True) -> Iterator[PartResult]:
    """Every part of every test of one pass. `nvlink_fitted` False: NVLinks that are called down are none."""
    gpus = one.gpu_numbers()
    for test in one.tests:
        found = list(_of_results(test, nvlink_fitted))
        yield from found
        yield from _of_the_test(test, found)
        yield from _absent(test, gpus)


def _of_results(test: TestRun, nvlink_fitted: bool) -> Iterator[PartResult]:
    own_errors = any(result.errors for result in test.results) or bool(test.errors)
    left = test.errors
    for result in test.results:
        errors = result.errors
        if result.number is None and result.status in _BAD and not errors:
            errors, left = left, ()  # "Fail - All": the errors below it are this row's
        gpu = result.number if result.entity == "GPU" else None
        printed = result.status.value if result.status is not Status.UNREADABLE else None
        if result.status in _BAD and not errors and own_errors and result.number is not None:
            yield PartResult(
                test=test,
                part=result.part,
                gpu=gpu,
                says=Says.UNMEASURED,
                printed=printed,
                suspect=_UNBLAMED,
                remedy=_CLEAR,
            )
            continue
        suppressed = tuple(DiagError(text=text) for text in result.suppressed)
        says, suspect, remedy = _judge(test, result, errors, suppressed, nvlink_fitted)
        yield PartResult(
            test=test,
            part=result.part,
            gpu=gpu,
            says=says,
            printed=printed,
            suspect=suspect,
            remedy=remedy,
            errors=(*errors, *suppressed),
            info=result.info,
            nvlink_fitted=nvlink_fitted,
        )
    for error in left:
        yield _of_an_error(test, error, Status.FAIL, nvlink_fitted)
    for text in test.suppressed:
        yield _of_an_error(test, DiagError(text=text), Status.PASS, nvlink_fitted)


def _of_an_error(test: TestRun, error: DiagError, status: Status, nvlink_fitted: bool) -> PartResult:
    """An error of the summary that stands at no result: of the GPU that its words name, or of all together."""
    part = named(error, "")
    says, suspect, remedy = _by_errors((error,), part, nvlink_fitted)
    return PartResult(
        test=test,
        part=part,
        gpu=gpu_of(error.text),
        says=says,
        printed=status.value,
        suspect=suspect if status is Status.FAIL else f"{suspect} ({_HIDDEN})",
        remedy=remedy,
        errors=(error,),
        nvlink_fitted=nvlink_fitted,
    )


def _of_the_test(test: TestRun, found: list[PartResult]) -> Iterator[PartResult]:
    """What the test's summary adds to its results, or says where there are none."""
    if test.summary in _BAD and not any(one.says is Says.FAILED or one.errors for one in found):
        says = f"{test.name}: its summary says Fail and gives no reason"
        yield PartResult(test=test, part="", says=Says.FAILED, printed=Status.FAIL.value, suspect=says)
    elif test.summary is Status.UNREADABLE:
        says = "the test's summary cannot be read"
        yield PartResult(test=test, part="", says=Says.UNMEASURED, printed=None, suspect=says)
    elif test.summary in (Status.SKIP, Status.NOT_RUN) and any(one.says is Says.PASSED for one in found):
        printed = test.summary.value if test.summary else ""
        says = f"its summary says {printed} over results that say Pass: nobody knows what ran"
        yield PartResult(test=test, part="", says=Says.UNMEASURED, printed=printed, suspect=says, remedy=_AGAIN)
    elif not test.results and not found:
        if test.summary is Status.PASS and not test.nulls and test.key in _OF_THE_NODE:
            yield PartResult(test=test, part="", says=Says.PASSED, printed=Status.PASS.value, info=test.info)
        elif test.summary is Status.SKIP:
            skip = Status.SKIP.value
            why = skipped(test)
            yield PartResult(test=test, part="", says=Says.UNMEASURED, printed=skip, suspect=why, remedy=_ALLOW)
        else:
            says = f"no GPU has a result of {test.name}"
            yield PartResult(test=test, part="", says=Says.UNMEASURED, printed=None, suspect=says, remedy=_AGAIN)


def _absent(test: TestRun, gpus: tuple[int, ...]) -> Iterator[PartResult]:
    """Parts that have no result, or two: one of them is not theirs."""
    counts = Counter(result.part for result in test.results)
    for part, count in counts.items():
        if count > 1 and part:
            yield _without(test, part, "two results for one part")
    tested = {result.number for result in test.results if result.entity == "GPU"}
    missing: list[int] = []
    only_cpus = {result.entity for result in test.results} == {"CPU"} and test.key not in GPU_TESTS
    # Software checks up to 3.x name a GPU only where it failed.
    if test.results and None not in tested and not test.software_check and not only_cpus:
        missing = [number for number in gpus if number not in tested]
        for number in missing:
            why = f"GPU {number}: no result of {test.name} (null or left out: it did not run there)"
            yield _without(test, f"GPU {number}", why, number)
    if test.nulls > len(missing):
        yield _without(test, "", f"{test.nulls} results are null: those did not run")


def _without(test: TestRun, part: str, why: str, gpu: int | None = None) -> PartResult:
    return PartResult(test=test, part=part, gpu=gpu, says=Says.UNMEASURED, printed=None, suspect=why, remedy=_AGAIN)


def _judge(  # noqa: PLR0911 - one return per status
    test: TestRun,
    result: EntityResult,
    errors: tuple[DiagError, ...],
    suppressed: tuple[DiagError, ...],
    nvlink_fitted: bool,
) -> tuple[Says, str, str]:
    """What one result says, whom to suspect, and the remedy."""
    part = result.part
    said = (*errors, *suppressed)
    if result.status in _BAD:
        if said:
            return _by_errors(said, part, nvlink_fitted)
        again = "run the test again with -v and read nvvs.log"
        return Says.FAILED, f"{part or test.name} (DCGM gives no reason)", again
    if result.status is Status.PASS:
        if not said:
            return Says.PASSED, "", ""
        says, suspect, remedy = _by_errors(said, part, nvlink_fitted)
        return says, f"{suspect} ({_HIDDEN if suppressed else 'error beside a Pass'})", remedy
    if result.status is Status.SKIP:
        if said:
            says, suspect, remedy = _by_errors(said, part, nvlink_fitted)
            return (says if test.summary in _BAD else Says.UNMEASURED), suspect, remedy
        return Says.UNMEASURED, skipped(test), _ALLOW
    if result.status is Status.NOT_RUN:
        return Says.UNMEASURED, f"{test.name} did not run", "run the test again"
    return Says.UNMEASURED, "the status cannot be read", "keep the whole output"


def skipped(test: TestRun) -> str:
    """Why a test says Skip, as far as DCGM lets one know: it gives no reason."""
    held = ", or memory held by another process" if test.key == "memory" else ""
    return f"{_CONFIGURATION}{held}"


def _by_errors(errors: tuple[DiagError, ...], part: str, nvlink_fitted: bool) -> tuple[Says, str, str]:
    """Not measured if every error says that the test could not do its work, else failed."""
    known = [meaning_of(error) for error in errors]
    says = Says.UNMEASURED if all(one.weight == UNMEASURED for one in known) else Says.FAILED
    suspects = [
        _NO_NVLINK if one.id == _NVLINK_DOWN and not nvlink_fitted else one.suspect_of(named(error, part))
        for error, one in zip(errors, known, strict=True)
    ]
    remedy = _NVLINK_OFF if suspects[0] == _NO_NVLINK else known[0].remedy
    return says, "; ".join(dict.fromkeys(suspects)), remedy
