launch() {
  local tp=$1
  shift
  python3 -m verl.trainer.main_ppo tp=$tp "$@" n=$#
}
tp=9
launch 2 a=1 "b=2 3"
launch 4
python3 -m verl.trainer.main_ppo outside=$tp
