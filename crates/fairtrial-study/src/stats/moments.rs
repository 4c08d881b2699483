//! Count, mean and spread of numbers that come one by one.

/// Count, mean and spread, by Welford's method.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moments {
    pub(crate) n: u64,
    pub(crate) mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
    low: f64,
    high: f64,
    /// How many are 1.
    ones: u64,
    /// How many are neither 0 nor 1.
    others: u64,
}

impl Moments {
    pub(crate) fn add(&mut self, value: f64) {
        if self.n == 0 {
            (self.low, self.high) = (value, value);
        }
        self.n += 1;
        let before = value - self.mean;
        self.mean += before / self.n as f64;
        self.squares += before * (value - self.mean);
        self.low = self.low.min(value);
        self.high = self.high.max(value);
        self.ones += u64::from(value == 1.0);
        self.others += u64::from(value != 0.0 && value != 1.0);
    }

    /// How many are 1, if all are 0 or 1; none of no number.
    pub(crate) fn hits(&self) -> Option<u64> {
        (self.n > 0 && self.others == 0).then_some(self.ones)
    }

    /// Of the sample; none of fewer than two numbers.
    pub(crate) fn variance(&self) -> Option<f64> {
        (self.n > 1).then(|| self.squares / (self.n - 1) as f64)
    }

    pub(crate) fn sum(&self) -> f64 {
        self.mean * self.n as f64
    }

    pub(crate) fn min(&self) -> f64 {
        self.low
    }

    pub(crate) fn max(&self) -> f64 {
        self.high
    }
}

impl<'a> FromIterator<&'a f64> for Moments {
    fn from_iter<I: IntoIterator<Item = &'a f64>>(values: I) -> Self {
        let mut moments = Self::default();
        values.into_iter().for_each(|value| moments.add(*value));
        moments
    }
}
