# ruff: noqa: E501 (lines of logs)
"""Logs of failed and of good jobs, with what triage must say: built here, or recorded.

In a built log "@R " marks the line of the root; the mark is taken off. The forms of the lines are
those that verl, vLLM, SGLang, PyTorch, Ray, NCCL, Slurm and Linux print; names, addresses and
numbers are invented.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
CASES = HERE / "logs" / "cases"
RECORDED = HERE / "logs" / "recorded"

ROOT, NO_PRIMARY, GOOD, OPEN = "root_cause", "no_primary_cause", "no_failure", "unknown"


@dataclass(frozen=True)
class Scenario:
    """`files` by name; `category`, `file` and `line` of the root, where there is one."""

    name: str
    origin: str
    files: dict[str, bytes]
    state: str
    category: str = ""
    file: str = ""
    line: int = 0
    host: str = ""
    needs: tuple[str, ...] = field(default=())

    def write(self, folder: Path) -> Path:
        """Write the files below `folder`."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return folder


def built(name: str, state: str, category: str = "", host: str = "", **files: str) -> Scenario:
    """A scenario of texts; a name's double underscore is a slash, a single one at its end a dot."""
    contents, root = {}, ("", 0)
    for key, text in files.items():
        file = key.replace("__", "/").replace("_", ".")
        lines = text.strip("\n").split("\n")
        for number, line in enumerate(lines, start=1):
            if line.startswith("@R "):
                assert root == ("", 0), f"{name} has two roots"
                root = (file, number)
                lines[number - 1] = line[3:]
        contents[file] = ("\n".join(lines) + "\n").encode()
    return Scenario(name, "built", contents, state, category, *root, host)


def traceback(prefix: str, frames: str, error: str, root: bool = False) -> str:
    """A traceback whose lines all have `prefix`; frames as "file:line:function", by spaces."""
    lines = [f"{prefix}Traceback (most recent call last):"]
    for frame in frames.split():
        file, line, function = frame.split(":")
        lines += [f'{prefix}  File "{file}", line {line}, in {function}', f"{prefix}    x = run(y)"]
    lines.append(f"{'@R ' if root else ''}{prefix}{error}")
    return "\n".join(lines)


STEPS = "\n".join(
    f"(TaskRunnerV1 pid=900) step:{n} - actor/pg_loss:0.0{n} - critic/rewards/mean:0.3{n}"
    for n in (1, 2)
)
STEP3 = "(TaskRunnerV1 pid=900) step:3 - actor/pg_loss:0.01 - critic/rewards/mean:0.4"
DONE = "(TaskRunnerV1 pid=900) 'Final validation metrics: None'"
TAIL = """\
Error executing job with overrides: ['data.truncation=error', 'trainer.logger=["console"]']
Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace."""
DIED = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    + TAIL
)
W1, W2 = "(WorkerDict pid=4011, ip=10.8.0.11) ", "(WorkerDict pid=4102, ip=10.8.0.12) "
R = "(RewardLoopWorker pid=611, ip=10.8.0.11) "
GLOO = W1 + (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] "
    "Connection closed by peer [10.8.0.12]:30551"
)
NCCL_LATE = W1 + (
    "[rank0]:[E802 12:40:12.100 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600044 milliseconds before timing out."
)


def echo(cause: str, call: str, pid: int, ip: str = "10.8.0.12") -> str:
    """Ray's exception in the caller."""
    return f"ray.exceptions.RayTaskError({cause}): ray::{call}() (pid={pid}, ip={ip})"


def _raised(
    name: str,
    category: str,
    error: str,
    frames: str = "verl/workers/fsdp.py:88:update_actor",
    host: str = "10.8.0.12",
) -> Scenario:
    """A worker raises, Ray reports it, Hydra prints its tail."""
    cause = error.split(":", maxsplit=1)[0].rsplit(".", 1)[-1]
    text = "\n".join(
        [
            STEPS,
            traceback(W2, frames, error, root=True),
            traceback(
                "",
                "verl/trainer/main_ppo.py:120:run",
                echo(cause, "WorkerDict.actor_rollout_update_actor", 4102),
            ),
            error,
            GLOO,
            TAIL,
        ]
    )
    return built(name, ROOT, category, host, job_log=text)


def _simple() -> list[Scenario]:
    mem = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a "
    mem += "total capacity of 95.00 GiB of which 1.10 GiB is free."
    bridge = "megatron/bridge/models/provider.py:41:provide megatron/bridge/models/gpt.py:9:build"
    return [
        _raised("oom-update", "gpu_oom", mem),
        _raised(
            "oom-musa", "gpu_oom", "RuntimeError: MUSA out of memory. Tried to allocate 1.5 GiB"
        ),
        _raised(
            "cublas-alloc",
            "gpu_oom",
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
            "`cublasCreate(handle)`",
        ),
        _raised(
            "illegal-access",
            "cuda_error",
            "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        ),
        _raised(
            "no-kernel-image",
            "driver_mismatch",
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        ),
        _raised(
            "musa-invalid", "musa_error", "RuntimeError: MUSA error: invalid configuration argument"
        ),
        _raised(
            "dynamo-unsupported",
            "kernel_compile",
            "torch._dynamo.exc.Unsupported: Attempted to call function marked as skipped",
        ),
        _raised(
            "inductor",
            "kernel_compile",
            "torch._inductor.exc.InductorError: CompilationError: at 14:20: shape mismatch",
        ),
        _raised(
            "backend-compiler",
            "kernel_compile",
            "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
        ),
        _raised(
            "ptxas", "kernel_compile", "triton.runtime.errors.PTXASError: PTXAS error: Internal"
        ),
        _raised(
            "extension-build",
            "kernel_compile",
            "RuntimeError: Error building extension 'fused_rope_cuda'",
        ),
        _raised(
            "expert-parallel",
            "parallel_layout",
            "RuntimeError: decoder world_size (32) is not divisible by "
            "expert_tensor_model_pipeline_parallel size (24)",
        ),
        _raised(
            "attention-heads",
            "parallel_layout",
            "AssertionError: num_query_groups (8) must be a multiple of or divisible by "
            "tensor_model_parallel_size (16)",
        ),
        _raised(
            "sequence-parallel",
            "parallel_layout",
            "AssertionError: First dimension of the tensor should be divisible by tensor "
            "parallel size",
        ),
        _raised(
            "view-shape",
            "shape_mismatch",
            "RuntimeError: shape '[2, 1024, 8, 128]' is invalid for input of size 1048576",
        ),
        _raised(
            "head-size",
            "shape_mismatch",
            "RuntimeError: Error(s) — size mismatch for lm_head.weight: copying a param with "
            "shape torch.Size([120832, 4096]) from checkpoint",
        ),
        _raised(
            "bridge-key",
            "config_error",
            "AttributeError: 'GPTModelProvider' object has no attribute 'swiglu_fusion'",
            bridge,
        ),
        _raised(
            "nan-grad",
            "nan",
            "AssertionError: Rank 9: found NaN in local grad norm for bucket #2 in backward "
            "pass before data-parallel communication collective. Device: 1",
        ),
        _raised(
            "multinomial",
            "nan",
            "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        ),
        _raised(
            "stale-mount",
            "io_error",
            "OSError: [Errno 116] Stale file handle: '/mnt/share/data/train.parquet'",
        ),
        _raised(
            "quota",
            "disk_full",
            "OSError: [Errno 122] Disk quota exceeded: '/home/u/ckpt/global_step_20/x.distcp'",
        ),
        _raised(
            "read-only",
            "permission",
            "OSError: [Errno 30] Read-only file system: '/mnt/share/ckpt'",
        ),
        _raised(
            "world-size",
            "checkpoint",
            "FileNotFoundError: [Errno 2] No such file or directory: "
            "'/c/global_step_40/actor/optim_world_size_32_rank_3.pt'",
        ),
        _raised(
            "torn-zip",
            "checkpoint",
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding "
            "central directory",
        ),
        _raised(
            "lfs-pointer",
            "weights_damaged",
            "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
        ),
        _raised(
            "not-local",
            "path_missing",
            "OSError: Can't load the configuration of '/models/Hy3'. If you were trying to "
            "load it from the Hub, check the name",
        ),
        _raised(
            "repo-id",
            "path_missing",
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' "
            "or 'namespace/repo_name': '/models/Hy3'. Use `repo_type` argument if needed.",
        ),
        _raised(
            "offline",
            "hub_access",
            "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached "
            "snapshot folder for the specified revision on the local disk",
        ),
        _raised(
            "undefined-symbol",
            "version_mismatch",
            "ImportError: /opt/venv/lib/python3.12/site-packages/flash_attn_2_cuda.so: "
            "undefined symbol: _ZN3c105ErrorC2E",
        ),
        _raised(
            "import-name",
            "version_mismatch",
            "ImportError: cannot import name 'AutoModelForVision2Seq' from 'transformers' "
            "(/opt/venv/lib/python3.12/site-packages/transformers/__init__.py)",
        ),
        _raised(
            "model-type",
            "version_mismatch",
            "ValueError: The checkpoint you are trying to load has model type `hy_v3` but "
            "Transformers does not recognize this architecture.",
        ),
        _raised(
            "no-transfer-queue",
            "import_error",
            "ModuleNotFoundError: No module named 'transfer_queue'",
        ),
        _raised(
            "reward-function",
            "reward_error",
            "ZeroDivisionError: division by zero",
            "verl/workers/reward_manager/naive.py:70:__call__ rewards/mine.py:9:compute_score",
        ),
        _raised("unknown-class", "exception", "acme.kernels.SlotExhausted: needs 9 slots, has 8"),
        _raised("queue-empty", "exception", "_queue.Empty"),
        _raised(
            "ecc",
            "hardware_ecc",
            "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        ),
        _raised("files-limit", "limits", "OSError: [Errno 24] Too many open files: '/proc/stat'"),
    ]


def _data() -> list[Scenario]:
    rows = [
        (
            "data-source",
            "data_error",
            "NotImplementedError: Reward function is not implemented for data_source='gsm8k-zh'",
        ),
        ("column", "data_error", "KeyError: 'data_source'"),
        (
            "template",
            "data_error",
            "jinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant",
        ),
        (
            "arrow",
            "data_error",
            "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is "
            "corrupted or this is not a parquet file.",
        ),
        ("empty", "data_error", "AssertionError: Train dataloader is empty!"),
        (
            "prompt-length",
            "sequence_length",
            "ValueError: The decoder prompt (length 9113) is longer than the maximum model length of "
            "8192. Make sure that `max_model_len` is no smaller than the number of text tokens.",
        ),
        ("wandb", "tracker", "wandb.errors.errors.UsageError: api_key not configured (no-tty)."),
        (
            "batch",
            "config_error",
            "AssertionError: real_train_batch_size (100) must be divisible by minimal possible batch "
            "size (16)",
        ),
    ]
    made = []
    for name, category, error in rows:
        text = traceback("(TaskRunnerV1 pid=900) ", "verl/trainer/main_ppo.py:146:run", error, True)
        last = echo(error.split(":")[0].rsplit(".", 1)[-1], "TaskRunnerV1.run", 900, "10.8.0.11")
        made.append(built(name, ROOT, category, job_log="\n".join([text, last, error, TAIL])))
    return made


def _engines() -> list[Scenario]:
    core = "(EngineCore_DP0 pid=7120) ERROR 11-30 09:12:{:02d} [core.py:866] "
    kv = (
        core.format(4)
        + "EngineCore failed to start.\n"
        + traceback(
            core.format(4),
            "vllm/v1/core/kv_cache_utils.py:690:check_enough_kv_cache_memory",
            "ValueError: No available memory for the cache blocks. Try increasing "
            "`gpu_memory_utilization` when initializing the engine.",
            True,
        )
    )
    sync = "(vLLMHttpServer pid=70) (Worker_TP1 pid=71) ERROR 11-30 09:12:01 [multiproc_executor.py:987] "
    weights = (
        sync
        + "WorkerProc hit an exception.\n"
        + traceback(
            sync,
            "verl/vllm_rollout/utils.py:283:update_weights vllm/models/hy_v3.py:602:load_weights",
            "KeyError: 'layers.3.mlp.gate.e_score_correction_bias'",
            True,
        )
    )
    failed = (
        "(vLLMHttpServer pid=7001, ip=10.8.0.13) RuntimeError: Engine core initialization failed. "
    )
    failed += "See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}"
    dead = "(AgentLoopWorker pid=7444) vllm.v1.engine.exceptions.EngineDeadError: EngineCore "
    dead += "encountered an issue. See stack trace (above) for the root cause."
    capture = "\n".join(
        [
            "[2026-08-02 10:00:32 TP0] Capture cuda graph begin. avail mem=2.85 GB",
            "[2026-08-02 10:00:41 TP0] Scheduler hit an exception: Traceback (most recent call last):",
            '  File "/sgl/srt/model_executor/cuda_graph_runner.py", line 361, in __init__',
            "    self.capture()",
            "@R torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB.",
            "",
            "During handling of the above exception, another exception occurred:",
            "",
            "Traceback (most recent call last):",
            '  File "/sgl/srt/managers/scheduler.py", line 2009, in run_scheduler_process',
            "    scheduler = Scheduler(server_args)",
            "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 MiB.",
            "Possible solutions:",
            "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
            "",
            "[2026-08-02 10:00:42] Received sigquit from a child process. It usually means the child "
            "failed.",
        ]
    )
    peer = "\n".join(
        [
            "[2026-08-02 10:00:43 TP1] Scheduler hit an exception: Traceback (most recent call last):",
            '  File "/sgl/srt/model_executor/cuda_graph_runner.py", line 361, in __init__',
            "    self.capture()",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by "
            "peer [10.8.0.11]:41233",
            "[2026-08-02 10:00:45] RuntimeError: Rank 1 scheduler is dead. Please check the logs.",
        ]
    )
    return [
        built(
            "kv-cache", ROOT, "kv_cache", "10.8.0.13", job_log="\n".join([kv, failed, dead, TAIL])
        ),
        built("weight-names", ROOT, "weight_sync", job_log="\n".join([STEPS, weights, dead, TAIL])),
        built("sglang-capture", ROOT, "graph_capture_oom", server_log=capture),
        built("sglang-peer-only", NO_PRIMARY, "collective_error", server_log=peer),
        built("engine-dead-only", NO_PRIMARY, "rollout_engine", job_log="\n".join([dead, TAIL])),
    ]


def _hosts() -> list[Scenario]:
    """Faults of hosts, with the logs of several."""
    drive = "\n".join([STEPS, NCCL_LATE, DIED])
    oom = "[ 9182.10] Out of memory: Killed process 4102 (ray::WorkerDict) total-vm:81kB, "
    oom += "anon-rss:70kB, file-rss:0kB, shmem-rss:12kB"
    bus = "[ 9182.10] NVRM: Xid (PCI:0000:3b:00): 79, pid=4102, GPU has fallen off the bus."
    lost = "2026-08-02 12:30:02,100 E (raylet, ip=10.8.0.11) The node with node id: 71ac and "
    lost += "address: 10.8.0.14 and node name: 10.8.0.14 has been marked dead because the detector "
    lost += "has missed too many heartbeats from it."
    missing = (
        "2026-08-02 12:30:00,120 ERROR FileNotFoundError: [Errno 2] No such file or directory: "
    )
    missing += "'/local/Qwen3-8B/config.json'"
    shm = "n2:305:401 [0] misc/shmutils.cc:72 NCCL WARN Error while creating shared memory segment "
    shm += "/dev/shm/nccl-a1 (size 9637888), error: No space left on device (28)"
    ib = "n3:77:91 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
    ib += "10.8.0.12<51234> with status=12 opcode=129 len=0 vendor err 129 (Recv)"
    slow = "slurmstepd: error: *** JOB 811 ON n1 CANCELLED AT 2026-08-02T12:00:10 DUE TO TIME LIMIT ***"
    port = (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    )
    port += "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: "
    port += "address already in use"
    store = (
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while "
    )
    store += "trying to connect to (10.8.0.11, 29500)."
    pending = "(autoscaler +2m3s) Error: No available node types can fulfill resource request "
    pending += (
        "{'GPU': 8.0, 'CPU': 16.0}. Add suitable node types to this cluster to resolve this issue."
    )
    few = "ValueError: Total available GPUs 15.0 is less than total desired GPUs 16"
    agent = (
        "[2026-08-02 12:00:10,206 E 393 393] agent_manager.cc:87: The raylet exited because the "
    )
    agent += "dashboard agent failed to start: no port"
    merge = "ValueError: Failed to merge the Job's runtime env {'env_vars': {'NCCL_DEBUG': 'INFO'}} with "
    merge += "a ray.init's runtime env {'env_vars': {'NCCL_DEBUG': 'WARN'}} because of a conflict."
    pip = "ERROR: No matching distribution found for TransferQueue==9.9.9"
    ver = "RuntimeError: Version mismatch: The cluster was started with:"
    barrier = (
        "RuntimeError: Timed out initializing process group in store based barrier on rank: {}, "
    )
    barrier += "for key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)"
    hang = "\n".join(
        f"[rank{n}]:[E802 10:32:1{n}.1 ProcessGroupNCCL.cpp:632] [Rank {n}] Watchdog caught "
        f"collective operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        f"Timeout(ms)=1800000) ran for 180004{n} milliseconds before timing out."
        for n in (0, 1, 3)
    )
    gone = "(raylet, ip=10.8.0.12) Raylet is terminated: ip=10.8.0.12, id=71ac. Termination is "
    gone += "unexpected. Possible reasons include: (1) SIGKILL by the user or system OOM killer, "
    gone += "(2) Invalid memory access from Raylet causing SIGSEGV or SIGBUS."
    unread = "ray.exceptions.RaySystemError: System error: Failed to unpickle serialized exception"
    unread += "\n" + traceback(
        "traceback: ",
        "ray/exceptions.py:51:from_ray_exception",
        "TypeError: SlotExhausted.__init__() missing 1 required positional argument: 'slots'",
    ).replace("\ntraceback: ", "\n")
    stuck = (
        "[rank6]:[E802 13:55:49.384 ProcessGroupNCCL.cpp:1743] [PG ID 0 Rank 6] ProcessGroupNCCL's "
    )
    stuck += "watchdog got stuck for 480 seconds without making progress in monitoring collectives."
    return [
        built("raylet-gone", NO_PRIMARY, "ray_node_death", job_log=f"{STEPS}\n{gone}\n{DIED}"),
        built("unreadable", NO_PRIMARY, "job_failed", job_log=f"{STEPS}\n{unread}\n{TAIL}"),
        built("watchdog-stuck", NO_PRIMARY, "collective_timeout", job_log=f"{STEPS}\n{stuck}"),
        _raised(
            "stream-failed",
            "storage_write",
            "RuntimeError: basic_ios::clear: iostream error",
            "torch/serialization.py:1312:_save",
        ),
        built("kernel-killer", ROOT, "host_oom", job_log=drive, node02__dmesg_txt="@R " + oom),
        built("fallen-off", ROOT, "hardware_gpu", job_log=drive, node03__dmesg_txt="@R " + bus),
        built("node-lost", ROOT, "ray_node_death", job_log=f"{STEPS}\n@R {lost}\n{DIED}"),
        built(
            "one-host-path",
            ROOT,
            "path_missing",
            "n3",
            head__job_log=drive,
            n3__worker_err="@R " + missing,
        ),
        built("nccl-shm", ROOT, "shm_full", job_log=drive, n2__worker_out="@R " + shm),
        built("roce", ROOT, "rdma", job_log=drive, n3__worker_out="@R " + ib),
        built("time-limit", ROOT, "time_limit", slurm_out=f"{STEPS}\n@R {slow}"),
        built(
            "port",
            ROOT,
            "port_in_use",
            job_log=traceback(W1, "torch/distributed/rendezvous.py:9:init", port, True)
            + "\n"
            + TAIL,
        ),
        built(
            "master-silent",
            ROOT,
            "rendezvous",
            job_log=traceback(W2, "torch/distributed/rendezvous.py:9:init", store, True)
            + "\n"
            + TAIL,
        ),
        built("pending", ROOT, "pending_resources", job_log="@R " + pending),
        built(
            "gpus-short",
            ROOT,
            "pending_resources",
            job_log=traceback("", "verl/single_controller/ray/base.py:90:check", few, True),
        ),
        built("agent", ROOT, "agent_port", raylet_out="@R " + agent, job_log=DIED),
        built(
            "env-merge",
            ROOT,
            "runtime_env_conflict",
            job_log=traceback("", "ray/_private/worker.py:1690:init", merge, True),
        ),
        built(
            "pip",
            ROOT,
            "runtime_env_setup",
            runtime_log="@R " + pip,
            job_log="ray.exceptions.ActorUnavailableError: The actor is unavailable.",
        ),
        built(
            "ray-versions",
            ROOT,
            "version_mismatch",
            job_log=traceback("", "ray/_private/node.py:300:check_version_info", ver, True),
        ),
        built("hang", NO_PRIMARY, "collective_timeout", job_log=hang),
        built(
            "barrier",
            NO_PRIMARY,
            "collective_timeout",
            job_log="\n".join(
                traceback(f"[rank{n}]: ", "torch/d.py:1:barrier", barrier.format(n))
                for n in (0, 1, 3)
            ),
        ),
        built("killed", NO_PRIMARY, "unknown_worker_death", job_log=f"{STEPS}\n{DIED}"),
        built(
            "segfault",
            ROOT,
            "native_crash",
            job_log="\n".join(
                [
                    STEPS,
                    "@R " + W2 + "*** SIGSEGV received at time=1795958969 on cpu 1 ***",
                    W2 + "PC: @ 0x7fd89f846f16 (unknown) flash::run()",
                    DIED,
                ]
            ),
        ),
        built(
            "assert-then-nccl",
            ROOT,
            "cuda_error",
            job_log="\n".join(
                [
                    "@R "
                    + W2
                    + "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553: operator(): block: "
                    "[31,0,0], thread: [96,0,0] Assertion `-sizes[i] <= index && index < sizes[i]` failed.",
                    traceback(
                        W2,
                        "verl/workers/fsdp.py:88:update_actor",
                        "RuntimeError: CUDA error: device-side assert triggered",
                    ),
                    NCCL_LATE,
                    DIED,
                ]
            ),
        ),
    ]


def _good() -> list[Scenario]:
    caught = traceback(
        "(AgentLoopWorker pid=520) ", "tools/search.py:9:call", "httpx.ConnectTimeout: timed out"
    )
    oom = W2 + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    later = traceback(
        "", "ray/_private/worker.py:1:shutdown", "RuntimeError: cannot schedule new futures"
    )
    warn = "WARNING 11-30 09:12:01 [utils.py:3] " + "\nWARNING 11-30 09:12:01 [utils.py:3] ".join(
        traceback("", "vllm/a.py:1:f", "ImportError: cannot import name 'x' from 'y'").split("\n")
    )
    retry = R + "ConnectionError: ('Connection aborted.'), retrying in 2 s [Retry 1/5]."
    many = "\n".join(
        traceback(R, "rewards/mine.py:9:compute_score", f"ValueError: row {n}") for n in range(40)
    )
    ended = "*** SIGTERM received at time=1795958969 on cpu 1 ***"
    return [
        built("good-plain", GOOD, job_log=f"{STEPS}\n{STEP3}\n{DONE}"),
        built("good-caught", GOOD, job_log=f"{STEPS}\n{caught}\n{STEP3}\n{DONE}"),
        built("good-many-rewards", GOOD, job_log=f"{STEPS}\n{many}\n{STEP3}\n{DONE}"),
        built("good-late-teardown", GOOD, job_log=f"{STEPS}\n{DONE}\n{later}"),
        built("good-handled", GOOD, job_log=f"{warn}\n{STEPS}\n{DONE}"),
        built("good-retry", GOOD, job_log=f"{STEPS}\n{retry}\n{DONE}"),
        built("good-recovered-oom", GOOD, job_log=f"{STEPS}\n{oom}\n{STEP3}\n{DONE}"),
        built("good-jobs-api", GOOD, job_log=f"{STEPS}\n{caught}\nJob 'raysubmit_8XkPq' succeeded"),
        built("good-worker-file", GOOD, job_log=f"{STEPS}\n{STEP3}\n{DONE}", n2__worker_err=caught),
        built(
            "recovered-then-killed",
            NO_PRIMARY,
            "unknown_worker_death",
            job_log=f"{STEPS}\n{caught}\n{STEP3}\n{DIED}",
        ),
        built(
            "recovered-then-oom",
            ROOT,
            "gpu_oom",
            job_log=(
                f"{STEPS}\n{many}\n{STEP3}\n"
                + traceback(
                    W2,
                    "verl/workers/fsdp.py:88:update_actor",
                    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
                    True,
                )
                + f"\n{DIED}"
            ),
        ),
        built(
            "stopped",
            OPEN,
            job_log=f"{STEPS}\n{ended}\n"
            + traceback("", "ray/a.py:1:get", "RuntimeError: interpreter is going down"),
        ),
        built("still-running", OPEN, job_log=STEPS),
    ]


def _shipped() -> list[Scenario]:
    from orjson import loads

    known = {
        "20-gpu-count-short": ("not_connected_to_cluster", "joblog.txt", 1, ""),
        "29-env-merge-conflict": ("runtime_env_conflict", "job.log", 1, ""),
        "33-transformers-560": ("version_mismatch", "job.log", 2, "10.8.0.12"),
        "73-root-not-named-error": ("kernel_resources", "triton.log", 5, "10.8.0.12"),
    }
    made = []
    for folder in sorted(CASES.iterdir()):
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "expected.json"
        }
        if folder.name in known:
            found = known[folder.name]
        else:
            expected = loads((folder / "expected.json").read_bytes())
            host = expected.get("host", "")
            found = (
                expected["category"],
                expected["root"]["file"],
                expected["root"]["line"],
                host if host.startswith("10.") else "",
            )
        made.append(Scenario(folder.name, "case", files, ROOT, *found))
    return made


_KNOWN = {
    "failed-gpu-sglang-unwritten": ("weight_sync", 1026),
    "failed-gpu-sglang-guard": ("weight_sync", 1018),
    "failed-gpu-port-race": ("port_in_use", 1045),
    "failed-cpu-weight-sync": ("weight_sync", 1100),
    "failed-gpu-fsdp-weight-names": ("weight_sync", 963),
    "failed-gpu-sglang-import": ("import_error", 986),
    "failed-gpu-sglang-rotary": ("rollout_engine", 133),
    # A small job on the four-host bed, a file on three of the hosts.
    "bed-path": ("path_missing", 37),
    # The rehearsal, broken in one place.
    "fault-cut-weights": ("weights_damaged", 1096),
    "fault-disk-full": ("storage_write", 1440),
    "fault-no-column": ("data_error", 1407),
    "fault-no-model": ("path_missing", 1009),
    "fault-no-prompt": ("data_error", 1466),
    "fault-ray-memory": ("host_oom", 54),
    "fault-reward-module": ("import_error", 1017),
    "fault-reward-raises": ("reward_error", 1402),
    "py-chain": ("exception", 8),
    "py-during": ("exception", 8),
    "py-group": ("exception", 6),
    "py-path": ("path_missing", 5),
    "py-port": ("port_in_use", 5),
    "py-full": ("disk_full", 5),
    "py-module": ("import_error", 4),
    "py-segv": ("native_crash", 1),
    "py-mem": ("host_oom", 5),
    "py-unnamed": ("exception", 4),
    "py-empty": ("exception", 7),
    "py-thread": ("exception", 10),
    "hydra-override": ("config_error", 1),
    "hydra-missing": ("config_error", 7),
    "hydra-key": ("config_error", 8),
    "hydra-syntax": ("config_error", 1),
}
# Of a process that was killed from outside no log says more than that it is gone.
_STATES = {
    "py-interrupt": (OPEN, ""),
    "failed-gpu-killed-rank": (NO_PRIMARY, "unknown_worker_death"),
    "fault-killed-engine": (NO_PRIMARY, "rollout_engine"),
    "fault-killed-raylet": (NO_PRIMARY, "ray_node_death"),
    "fault-killed-trainer": (NO_PRIMARY, "unknown_worker_death"),
}


def _recorded() -> list[Scenario]:
    """A file is a log, a folder the logs of a job and its host."""
    made = []
    for path in sorted(RECORDED.iterdir()):
        name = path.name.split(".")[0]
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        base = path if path.is_dir() else RECORDED
        files = {str(one.relative_to(base)): one.read_bytes() for one in found if one.is_file()}
        job = "attempt-1.log.gz" if path.is_dir() else path.name
        if name in _KNOWN:
            category, line = _KNOWN[name]
            made.append(Scenario(name, "recorded", files, ROOT, category, job, line))
        else:
            state, category = _STATES.get(name, (GOOD, ""))
            made.append(Scenario(name, "recorded", files, state, category))
    return made


def text_of(scenario: Scenario, name: str) -> str:
    """One file's text, unpacked."""
    data = scenario.files[name]
    return (gzip.decompress(data) if name.endswith(".gz") else data).decode(errors="replace")


def scenarios() -> list[Scenario]:
    """All logs, by name."""
    return [*_shipped(), *_recorded(), *_simple(), *_data(), *_engines(), *_hosts(), *_good()]
