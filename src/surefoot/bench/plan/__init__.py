"""`surefoot bench plan`: what `surefoot plan` predicts, beside what is measured."""
