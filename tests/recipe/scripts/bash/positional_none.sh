python3 -m verl.trainer.main_ppo a=1 "$@" $* n=$# x=${1:-default}
