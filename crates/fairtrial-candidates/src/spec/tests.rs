mod broken;
mod defaults;
mod hostile;
mod round_trip;
