A=${X:-${Y:-${Z:-"deep value"}}}
python3 -m verl.trainer.main_ppo a="$A" b=${X:-'quoted } brace'} c="${X:-a "b" c}"
