# nothing to do
