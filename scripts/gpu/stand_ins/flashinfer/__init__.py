"""Stands where FlashInfer is not installed: it has the names that SGLang imports without asking.

SGLang 0.5.12 imports three functions of FlashInfer wherever there is a CUDA device
(sglang/srt/layers/sampler.py, sglang/srt/layers/attention/vision.py). None of them is called with
sampling_backend=pytorch and a text model; calling one says what is missing. Everything else of
SGLang asks SGLANG_IS_FLASHINFER_AVAILABLE first, which must be false.
"""

__version__ = "0.0.0"


def missing(name: str):  # noqa: ANN201
    """A function that raises: `name` would have been FlashInfer's."""

    def call(*_: object, **__: object) -> None:
        raise RuntimeError(
            f"{name} is FlashInfer's, which is not installed here: use sampling_backend=pytorch"
            " and attention_backend=triton (docs/gpu.md)"
        )

    call.__name__ = name.rpartition(".")[2]
    return call
