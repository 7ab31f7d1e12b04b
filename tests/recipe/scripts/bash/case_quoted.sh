P='a*'
case 'a*' in "$P") Q=literal ;; esac
case abc in "$P") R=literal ;; $P) R=pattern ;; esac
python3 -m verl.trainer.main_ppo q=$Q r=$R
