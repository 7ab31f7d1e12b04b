set -- x=1 "y=2 3"
python3 -m verl.trainer.main_ppo "$@" n=$# first=$1 "all=$*"
shift
python3 -m verl.trainer.main_ppo "$@" "${@:1}" ${3:-none}
