function run_it {
  python3 -m verl.trainer.main_ppo name=$1
}
run_it first; run_it second
