V=qwen3-30b-a3b
if [[ $V =~ ^qwen([0-9]+)-([0-9]+)b ]]; then G=${BASH_REMATCH[1]} B=${BASH_REMATCH[2]}; fi
[[ 2048 =~ ^[0-9]+$ ]] && N=number
python3 -m verl.trainer.main_ppo g=$G b=$B n=$N
