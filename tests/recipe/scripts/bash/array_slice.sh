A=(a=1 b=2 c=3 d=4)
python3 -m verl.trainer.main_ppo "${A[@]:1}" x "${A[@]:1:2}" y "${A[@]: -1}" z "${A[@]::2}"
