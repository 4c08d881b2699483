mod broken;
mod defaults;
mod round_trip;
