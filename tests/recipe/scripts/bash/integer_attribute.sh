declare -i N=3+4
N+=5
declare -l LOW=ABC
declare -r FIXED=f
export -n N
readonly CONST=c
python3 -m verl.trainer.main_ppo n=$N low=$LOW f=$FIXED c=$CONST
