"""How vLLM, OpenAI's API, transformers and llama.cpp call what is asked of a model.

Each table maps such a name to the one that exists here, or to a sentence that says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_NONE: Final = "not supported"
_BEAMS: Final = "not supported: there is no beam search; n gives independent completions"
_MASK: Final = "not supported; logit_bias of -100 keeps a token out, of 100 forces it"
_DECIDES: Final = "not needed: temperature=0 is greedy, and a higher one samples"
_STRUCTURE: Final = "not supported: there is no constrained decoding"
_MESSAGES: Final = "part of a call: llm.chat(messages, params)"
_TEMPLATE: Final = "the tokenizer's own template decides; llm.chat renders it"
_LENGTH: Final = "prompt and answer together are bounded by LLM(max_model_len=...); use max_tokens"
_DRAFTER: Final = "an option of the model: LLM(drafter=...)"
_DRAFTS: Final = "an option of the model: LLM(draft_length=...)"
_CONTEXT: Final = "an option of the model: LLM(max_model_len=...)"

#: Sampling parameters of others.
SAMPLING: Final[Mapping[str, str]] = {
    # the length of an answer
    "max_new_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_tokens_to_sample": "max_tokens",
    "max_gen_len": "max_tokens",
    "max_gen_toks": "max_tokens",
    "maxtokens": "max_tokens",
    "num_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "n_tokens": "max_tokens",
    "max_length": _LENGTH,
    "max_model_len": _CONTEXT,
    "num_ctx": _CONTEXT,
    "n_ctx": _CONTEXT,
    "min_new_tokens": "min_tokens",
    "min_length": "min_tokens",
    "min_completion_tokens": "min_tokens",
    "length_penalty": _BEAMS,
    "truncate_prompt_tokens": "not supported: shorten the prompt",
    # what is sampled
    "temp": "temperature",
    "topk": "top_k",
    "topp": "top_p",
    "minp": "min_p",
    "nucleus": "top_p",
    "do_sample": _DECIDES,
    "sample": _DECIDES,
    "greedy": _DECIDES,
    "typical_p": _NONE,
    "typ_p": _NONE,
    "typical": _NONE,
    "tfs_z": _NONE,
    "top_a": _NONE,
    "top_h": _NONE,
    "top_n_sigma": _NONE,
    "epsilon_cutoff": _NONE,
    "eta_cutoff": _NONE,
    "xtc_probability": _NONE,
    "xtc_threshold": _NONE,
    "dynatemp_range": _NONE,
    "dynatemp_exponent": _NONE,
    "mirostat": _NONE,
    "mirostat_tau": _NONE,
    "mirostat_eta": _NONE,
    "penalty_alpha": _NONE,
    "min_keep": _NONE,
    "samplers": "not supported: filters apply in vLLM's order",
    "renormalize_logits": "not needed: probabilities sum to 1",
    "random_seed": "seed",
    "rng_seed": "seed",
    # how often
    "num_return_sequences": "n",
    "num_completions": "n",
    "n_completions": "n",
    "num_samples": "n",
    "best_of": "not supported; use n, and choose among the completions",
    "num_beams": _BEAMS,
    "num_beam_groups": _BEAMS,
    "beam_width": _BEAMS,
    "use_beam_search": _BEAMS,
    "early_stopping": _BEAMS,
    "diversity_penalty": _BEAMS,
    # where it ends
    "stop_sequences": "stop",
    "stop_strings": "stop",
    "stop_words": "stop",
    "stopping_strings": "stop",
    "stop_sequence": "stop",
    "stop_texts": "stop",
    "antiprompt": "stop",
    "reverse_prompt": "stop",
    "end_sequences": "stop",
    "eos_token_id": "stop_token_ids",
    "eos_token_ids": "stop_token_ids",
    "stop_token_id": "stop_token_ids",
    "stop_ids": "stop_token_ids",
    "stop_regex": "not supported; use stop",
    "stopping_criteria": "not supported; use stop or stop_token_ids",
    "ignore_eos_token": "ignore_eos",
    "include_stop": "include_stop_str_in_output",
    "include_stop_str": "include_stop_str_in_output",
    "no_stop_trim": "include_stop_str_in_output",
    "keep_special_tokens": "skip_special_tokens",
    "spaces_between_special_tokens": _NONE,
    "clean_up_tokenization_spaces": _NONE,
    "detokenize": "not supported: text is always made; token_ids are beside it",
    "pad_token_id": "not needed: nothing is padded",
    # penalties
    "repeat_penalty": "repetition_penalty",
    "rep_pen": "repetition_penalty",
    "rep_penalty": "repetition_penalty",
    "repetitive_penalty": "repetition_penalty",
    "repeat_last_n": "not supported: repetition_penalty counts prompt and answer",
    "penalize_nl": _NONE,
    "encoder_repetition_penalty": _NONE,
    "no_repeat_ngram_size": _NONE,
    "dry_multiplier": _NONE,
    "dry_base": _NONE,
    "dry_allowed_length": _NONE,
    "freq_penalty": "frequency_penalty",
    "frequence_penalty": "frequency_penalty",
    "pres_penalty": "presence_penalty",
    # single tokens
    "logits_bias": "logit_bias",
    "sequence_bias": "logit_bias",
    "bad_words": _MASK,
    "bad_words_ids": _MASK,
    "suppress_tokens": _MASK,
    "begin_suppress_tokens": _MASK,
    "allowed_token_ids": _MASK,
    "forced_bos_token_id": _MASK,
    "forced_eos_token_id": _MASK,
    "logits_processor": _NONE,
    "logits_processors": _NONE,
    # structure
    "guided_decoding": _STRUCTURE,
    "guided_json": _STRUCTURE,
    "guided_regex": _STRUCTURE,
    "guided_choice": _STRUCTURE,
    "guided_grammar": _STRUCTURE,
    "structured_outputs": _STRUCTURE,
    "response_format": _STRUCTURE,
    "json_schema": _STRUCTURE,
    "grammar": _STRUCTURE,
    "regex": _STRUCTURE,
    "tools": _STRUCTURE,
    "tool_choice": _STRUCTURE,
    # what comes back
    "top_logprobs": "logprobs",
    "n_probs": "logprobs",
    "num_logprobs": "logprobs",
    "output_logits": "not supported; use logprobs",
    "output_scores": "not supported; use logprobs",
    "return_logprob": "logprobs",
    "prompt_logprobs": "not supported: only tokens of the answer are reported; use logprobs",
    "echo": "not supported: the prompt is in the output's prompt and prompt_token_ids",
    "return_full_text": "not supported: the prompt is in the output's prompt",
    "output_kind": "not supported; llm.stream gives pieces, llm.generate the whole",
    "stream": "a call of its own: llm.stream(prompt, params)",
    "stream_options": "not needed: a stream's output carries its metrics",
    "messages": _MESSAGES,
    "prompt": "part of a call: llm.generate(prompt, params)",
    "model": "part of the model: LLM(model)",
    "suffix": _NONE,
    "user": "not supported",
    "extra_body": "not supported",
    "extra_args": "not supported",
    "chat_template_kwargs": _TEMPLATE,
    "add_generation_prompt": _TEMPLATE,
    "use_cache": "not needed: keys and values are always kept",
    "cache_prompt": "not needed: keys and values are always kept",
    # drafting
    "assistant_model": _DRAFTER,
    "drafter": _DRAFTER,
    "prompt_lookup_num_tokens": 'an option of the model: LLM(drafter="ngram")',
    "num_assistant_tokens": _DRAFTS,
    "num_speculative_tokens": _DRAFTS,
    "draft_length": _DRAFTS,
    "n_draft": _DRAFTS,
}

_PARALLEL: Final = "not supported: one process on one device serves the model"
_STORED: Final = "not supported: weights keep the format of the checkpoint"
_TOKENIZER: Final = "not supported: the tokenizer comes from the checkpoint"
_CODE: Final = "not needed: no code of a checkpoint is ever run"
_HUB: Final = "not supported; environment variables HF_HOME and HF_TOKEN are respected"
_GRAPHS: Final = "not needed: nothing is compiled or captured"
_MEMORY: Final = "not supported; kv_cache_memory_bytes bounds the KV cache"
_PREFIX: Final = "not supported: prompts share no cache"
_PARAMS: Final = "a sampling parameter: SamplingParams("
_ROPE: Final = "not supported: config.json decides"
#: Sampling parameters that callers of other engines pass beside them.
SAMPLING_NAMES: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "n",
    "max_tokens",
    "min_tokens",
    "stop",
    "stop_token_ids",
    "logprobs",
    "ignore_eos",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "skip_special_tokens",
    "include_stop_str_in_output",
)

#: Options of ``LLM`` of others.
OPTIONS: Final[Mapping[str, str]] = {
    # which model
    "model_path": "model",
    "model_name": "model",
    "model_id": "model",
    "model_name_or_path": "model",
    "pretrained_model_name_or_path": "model",
    "hf_model": "model",
    "gguf_file": 'model="file.gguf", or model="org/name:file.gguf"',
    "revision": _HUB,
    "code_revision": _HUB,
    "download_dir": _HUB,
    "cache_dir": _HUB,
    "hf_token": _HUB,
    "token": _HUB,
    "local_files_only": "not supported; environment variable HF_HUB_OFFLINE=1 is respected",
    "load_format": "not supported: safetensors and GGUF are told apart by themselves",
    "trust_remote_code": _CODE,
    "hf_overrides": _ROPE,
    "rope_scaling": _ROPE,
    "rope_theta": _ROPE,
    "rope_freq_base": _ROPE,
    "rope_freq_scale": _ROPE,
    "generation_config": "not supported: parameters are those of SamplingParams",
    "override_generation_config": "not supported: parameters are those of SamplingParams",
    "tokenizer": _TOKENIZER,
    "tokenizer_mode": _TOKENIZER,
    "tokenizer_revision": _TOKENIZER,
    "skip_tokenizer_init": _TOKENIZER,
    "chat_template": _TOKENIZER,
    "chat_format": _TOKENIZER,
    "task": "not needed: every model generates",
    "runner": "not needed: every model generates",
    "enable_lora": _NONE,
    "lora_path": _NONE,
    "limit_mm_per_prompt": "not supported: prompts are text",
    # numbers and memory
    "dtype": _STORED,
    "torch_dtype": _STORED,
    "quantization": _STORED,
    "load_in_8bit": _STORED,
    "load_in_4bit": _STORED,
    "quantization_config": _STORED,
    "attn_implementation": "not supported; kernels pins a code path",
    "flash_attn": "not supported; kernels pins a code path",
    "kv_bytes": "kv_cache_memory_bytes",
    "kv_cache_bytes": "kv_cache_memory_bytes",
    "kv_cache_memory": "kv_cache_memory_bytes",
    "gpu_memory_utilization": _MEMORY,
    "mem_fraction_static": _MEMORY,
    "num_gpu_blocks_override": _MEMORY,
    "swap_space": "not needed: a request that loses its pages is fed again",
    "cpu_offload_gb": _NONE,
    "block_size": "not supported: pages have 32 tokens",
    "use_mmap": "not needed: files are always mapped",
    "use_mlock": _NONE,
    "offload_kqv": _NONE,
    "enable_prefix_caching": _PREFIX,
    "no_prefix_cache": _PREFIX,
    # lengths and seats
    "n_ctx": "max_model_len",
    "num_ctx": "max_model_len",
    "ctx_size": "max_model_len",
    "context_length": "max_model_len",
    "context_size": "max_model_len",
    "context_len": "max_model_len",
    "max_context_len": "max_model_len",
    "max_seq_len": "max_model_len",
    "max_seq_length": "max_model_len",
    "max_sequence_length": "max_model_len",
    "max_position_embeddings": "max_model_len",
    "model_max_length": "max_model_len",
    "max_seq_len_to_capture": _GRAPHS,
    "max_batch_size": "max_num_seqs",
    "batch_size": "max_num_seqs",
    "max_running_requests": "max_num_seqs",
    "max_num_sequences": "max_num_seqs",
    "n_parallel": "max_num_seqs",
    "n_seq_max": "max_num_seqs",
    "n_batch": "max_num_batched_tokens",
    "n_ubatch": "max_num_batched_tokens",
    "max_batched_tokens": "max_num_batched_tokens",
    "max_prefill_tokens": "max_num_batched_tokens",
    "chunked_prefill_size": "max_num_batched_tokens",
    "enable_chunked_prefill": "not needed: long prompts are always fed in chunks",
    "disable_log_stats": _NONE,
    "verbose": "progress",
    "use_tqdm": "progress",
    # where it runs
    "device_map": "device",
    "n_threads": "threads",
    "num_threads": "threads",
    "n_threads_batch": "threads",
    "nthreads": "threads",
    "cpu_threads": "threads",
    "backend": "kernels",
    "tensor_parallel_size": _PARALLEL,
    "pipeline_parallel_size": _PARALLEL,
    "data_parallel_size": _PARALLEL,
    "tp_size": _PARALLEL,
    "tp": _PARALLEL,
    "distributed_executor_backend": _PARALLEL,
    "worker_cls": _PARALLEL,
    "n_gpu_layers": _PARALLEL,
    "main_gpu": _PARALLEL,
    "tensor_split": _PARALLEL,
    "enforce_eager": _GRAPHS,
    "compilation_config": _GRAPHS,
    "disable_custom_all_reduce": _PARALLEL,
    # drafting
    "speculative_config": "not supported; use drafter and draft_length",
    "speculative_model": "drafter",
    "speculative_algorithm": "drafter",
    "speculative_draft_model_path": "drafter",
    "draft_model": "drafter",
    "assistant_model": "drafter",
    "num_speculative_tokens": "draft_length",
    "speculative_num_draft_tokens": "draft_length",
    "speculative_num_steps": "draft_length",
    "num_draft_tokens": "draft_length",
    "draft_tokens": "draft_length",
    "n_draft": "draft_length",
    "draft_max": "draft_length",
    "rejection_sample_method": "verification",
    "speculative": "drafter",
    # what belongs to a request
    **{name: f"{_PARAMS}{name}=...)" for name in SAMPLING_NAMES},
    "max_new_tokens": f"{_PARAMS}max_tokens=...)",
}

_TO_CALL: Final = "not supported; raw prompts go to generate, messages to chat"

_EVERYWHERE: Final[Mapping[str, str]] = {
    **{name: f"{_PARAMS}{name}=...)" for name in SAMPLING_NAMES},
    **{
        name: f"{_PARAMS}{hint}=...)" if hint in SAMPLING_NAMES else hint
        for name, hint in SAMPLING.items()
    },
    "sampling_params": "params",
    "generation_config": "params",
    "use_tqdm": "progress, a function of (label, done, total)",
    "lora_request": _NONE,
    "priority": _NONE,
    "multi_modal_data": _NONE,
    "chat_template": _TEMPLATE,
    "chat_template_kwargs": _TEMPLATE,
    "add_generation_prompt": "not needed: an answer is always what follows",
    "continue_final_message": _TO_CALL,
    "tools": "not supported in a call; tokenizer.encode_chat(messages, tools=...) renders them",
    "stream": "a call of its own: llm.stream(prompt, params)",
}
#: What is answered, as text and as tokens, and as a conversation.
_TEXTS: Final = ("prompt", "prompts", "inputs", "input", "text", "texts", "query", "question")
_TOKENS: Final = ("prompt_token_ids", "input_ids", "token_ids", "tokens")
_TALKS: Final = ("messages", "message", "conversation", "conversations", "dialog", "history")


def _answered(texts: str, tokens: str, talks: str) -> dict[str, str]:
    """Hints of a call at names for what it is to answer."""
    return {
        **dict.fromkeys(_TEXTS, texts),
        **dict.fromkeys(_TOKENS, tokens),
        **dict.fromkeys(_TALKS, talks),
    }


_RAW: Final = "raw prompts go to llm.generate(prompts, params)"

#: Arguments of the calls that generate, as other software names them, by the name of the call.
CALLS: Final[Mapping[str, Mapping[str, str]]] = {
    "generate": {
        **_EVERYWHERE,
        **_answered("prompts", "use prompts, which may be token ids", _MESSAGES),
    },
    "chat": {**_EVERYWHERE, **_answered(_RAW, _RAW, "messages")},
    "stream": {
        **_EVERYWHERE,
        **_answered("prompt", "use prompt, which may be token ids", "prompt"),
        "progress": "not needed: pieces come as they are decided",
        "use_tqdm": "not needed: pieces come as they are decided",
    },
}
