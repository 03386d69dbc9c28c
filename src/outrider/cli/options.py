"""Options that several commands share, declared once as groups.

A command takes a group as one parameter; ``spread`` turns it into one option per field.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Unpack, get_type_hints

import typer
from typer.models import OptionInfo

from outrider.cli.console import progress_bars
from outrider.config.engine import Device, EngineOptions, Verification
from outrider.config.kv import KvCacheDtype
from outrider.types.errors import RequestError
from outrider.types.progress import Progress
from outrider.types.sampling import SamplingParams
from outrider.types.sizes import parse_bytes

if TYPE_CHECKING:
    from outrider.llm.llm import LLM
    from outrider.models.target import Target


def _option(*names: str, help: str, least: int | None = None) -> OptionInfo:
    option: OptionInfo = typer.Option(*names, help=help, min=least)
    return option


ModelName = Annotated[
    str,
    _option(
        "--model",
        "-m",
        help='"smollm2", a checkpoint folder, a .gguf file, or an org/name on the hub.',
    ),
]
DeviceName = Annotated[
    Device,
    _option("--device", help="Where to run; auto takes the fastest."),
]
KernelsName = Annotated[
    str | None,
    _option(
        "--kernels",
        help="avx512vnni, avx2, portable or reference; omitted: the fastest that runs here.",
    ),
]
Threads = Annotated[
    int | None,
    _option("--threads", least=1, help="CPU threads."),
]
MaxModelLen = Annotated[
    int | None,
    _option(
        "--max-model-len",
        least=1,
        help="Most tokens of prompt and answer; omitted: the model's own limit, or what fits.",
    ),
]
CacheMemory = Annotated[
    str | None,
    typer.Option(
        "--kv-cache-memory-bytes",
        metavar="SIZE",
        help="Most memory of the KV caches: 2GiB, 512MiB, 1.5G, or bytes; omitted: 2GiB.",
    ),
]
KvCacheDtypeName = Annotated[
    KvCacheDtype,
    _option(
        "--kv-cache-dtype",
        help="How keys and values are kept; auto: int8 for quantised weights, else bfloat16.",
    ),
]
AsJson = Annotated[bool, _option("--json", help="Print JSON on standard output.")]


@dataclass(frozen=True)
class TargetOptions:
    """Which model to run, and on what."""

    model: ModelName = "smollm2"
    device: DeviceName = "auto"
    kernels: KernelsName = None
    threads: Threads = None
    max_model_len: MaxModelLen = None
    kv_cache_dtype: KvCacheDtypeName = "auto"
    kv_cache_memory_bytes: CacheMemory = None

    def cache_bytes(self) -> int | None:
        """Most bytes of the KV caches; RequestError if it is no amount of memory."""
        asked = self.kv_cache_memory_bytes
        return None if asked is None else parse_bytes("--kv-cache-memory-bytes", asked)

    def load_target(self, progress: Progress) -> Target:
        """Load the model alone, to be put into engines of one's own."""
        from outrider.assembly.target import make_target

        return make_target(
            self.model,
            device=self.device,
            threads=self.threads,
            kernels=self.kernels,
            max_model_len=self.max_model_len,
            progress=progress,
        )

    def load(self, drafter: str, **engine: Unpack[EngineOptions]) -> LLM:
        """Load the model with a drafter, behind progress bars."""
        from outrider.llm.llm import LLM

        engine["max_model_len"] = self.max_model_len
        engine["kv_cache_dtype"] = self.kv_cache_dtype
        engine["kv_cache_memory_bytes"] = self.cache_bytes()
        with progress_bars() as progress:
            return LLM(
                self.model,
                drafter=drafter,
                device=self.device,
                threads=self.threads,
                kernels=self.kernels,
                progress=progress,
                **engine,
            )


@dataclass(frozen=True)
class DraftOptions:
    """How to draft. Nothing here changes an answer, except ``--verification rejection``."""

    drafter: Annotated[
        str,
        _option(
            "--drafter",
            "-d",
            help='"auto", "none", a name that "outrider drafters" lists, a folder, or a hub id.',
        ),
    ] = "auto"
    draft_length: Annotated[
        int | None,
        _option(
            "--draft-length",
            least=0,
            help="Tokens to draft per round; omitted: the engine chooses.",
        ),
    ] = None
    confidence_threshold: Annotated[
        float,
        _option(
            "--confidence-threshold",
            help="Cut a draft before its first token with less confidence; 0 never cuts.",
        ),
    ] = 0.0
    verification: Annotated[
        Verification,
        _option(
            "--verification",
            help="coupled: the tokens of plain decoding. rejection: their distribution only.",
        ),
    ] = "coupled"

    def load(self, target: TargetOptions) -> LLM:
        """Load the model with this drafter, to serve one request at a time."""
        return target.load(
            self.drafter,
            max_num_seqs=1,
            draft_length=self.draft_length,
            confidence_threshold=self.confidence_threshold,
            verification=self.verification,
        )


@dataclass(frozen=True)
class SamplingOptions:
    """What the sampler is asked for."""

    max_tokens: Annotated[int, _option("--max-tokens", "-n", help="Most tokens to write.")] = 256
    temperature: Annotated[float, _option("--temperature", "-t", help="0 is greedy.")] = 1.0
    top_p: Annotated[float, _option("--top-p", help="Keep this probability mass.")] = 1.0
    top_k: Annotated[int, _option("--top-k", help="Keep so many tokens; 0 keeps all.")] = 0
    min_p: Annotated[
        float, _option("--min-p", help="Drop tokens below this share of the likeliest.")
    ] = 0.0
    seed: Annotated[
        int | None, _option("--seed", help="Repeats an answer; omitted: a fresh one.")
    ] = None
    stop: Annotated[
        list[str] | None, _option("--stop", help="Text that ends the answer; may be repeated.")
    ] = None
    stop_token_id: Annotated[
        list[int] | None,
        _option("--stop-token-id", help="Token that ends the answer; may be repeated."),
    ] = None
    include_stop: Annotated[
        bool, _option("--include-stop", help="Keep the text of what ended the answer.")
    ] = False
    min_tokens: Annotated[
        int, _option("--min-tokens", help="Do not end before so many tokens.")
    ] = 0
    ignore_eos: Annotated[
        bool, _option("--ignore-eos", help="Go on after the model's own end token.")
    ] = False
    presence_penalty: Annotated[
        float, _option("--presence-penalty", help="Against tokens already written, once.")
    ] = 0.0
    frequency_penalty: Annotated[
        float, _option("--frequency-penalty", help="Against tokens already written, each time.")
    ] = 0.0
    repetition_penalty: Annotated[
        float, _option("--repetition-penalty", help="Against tokens of prompt and answer.")
    ] = 1.0
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(
            "--logit-bias", metavar="ID=VALUE", help="Add to a token's logit; may be repeated."
        ),
    ] = None
    keep_special_tokens: Annotated[
        bool, _option("--keep-special-tokens", help="Show markup tokens in the answer.")
    ] = False

    def params(self) -> SamplingParams:
        """Return the sampling parameters; RequestError names what is out of range."""
        return SamplingParams(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            seed=self.seed,
            stop=self.stop,
            stop_token_ids=self.stop_token_id,
            include_stop_str_in_output=self.include_stop,
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias=_parse_bias(self.logit_bias or []),
            skip_special_tokens=not self.keep_special_tokens,
        )


def _parse_bias(items: list[str]) -> dict[int, float]:
    """Parse ``ID=VALUE`` items."""
    bias: dict[int, float] = {}
    for item in items:
        token, _, value = item.partition("=")
        try:
            bias[int(token)] = float(value)
        except ValueError:
            raise RequestError("--logit-bias", f"must be ID=VALUE, not {item!r}") from None
    return bias


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` one option per field of every parameter that is an option group."""
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
            parameters += _field_parameters(kind)
        else:
            parameters.append(
                parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY)
            )

    @functools.wraps(command)
    def gathered(**values: object) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        command(**values)

    gathered.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    gathered.__dict__["__signature__"] = inspect.Signature(parameters)
    return gathered


def _field_parameters(kind: type) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[field.name],
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
        )
        for field in fields(kind)
    ]
