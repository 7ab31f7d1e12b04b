set -euxo pipefail
set -o noglob
set +o noglob
python3 -m verl.trainer.main_ppo a=1 "$@"
