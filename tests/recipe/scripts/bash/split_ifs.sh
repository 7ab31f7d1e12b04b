LIST=a,b,,c
IFS=,
python3 -m verl.trainer.main_ppo $LIST
IFS=$' \t\n'
python3 -m verl.trainer.main_ppo $LIST "x=${LIST//,/ }"
