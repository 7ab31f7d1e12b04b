"""What verl and vLLM need to run a tiny Hy3 on a CPU, and what Hy3 needs of verl anywhere.

Nothing happens on import. ``reprise_plugins.verl_entry`` and ``reprise_plugins.vllm_entry`` are
found by verl and vLLM through their entry points and act only when the environment asks for it
(see ``reprise_plugins.switches``). ``python -m reprise_plugins`` lists every bridge and its state.
"""

__version__ = "0.1.0"
