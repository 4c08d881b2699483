//! Student's t distribution, to about 1e-13.

use std::f64::consts::PI;

/// P(T > t).
pub(crate) fn upper_tail(t: f64, df: f64) -> f64 {
    let half = two_tails(t, df) / 2.0;
    if t >= 0.0 { half } else { 1.0 - half }
}

/// P(|T| > |t|).
pub(crate) fn two_tails(t: f64, df: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    let ratio = t * t / df;
    let (x, rest) = (1.0 / (1.0 + ratio), ratio / (1.0 + ratio));
    let (a, b) = (df / 2.0, 0.5);
    if rest == 0.0 {
        return 1.0;
    }
    // x^a (1-x)^b / B(a, b); the logarithm by `ln_1p`, since x is near 1 where there are many degrees of freedom.
    let front = (-a * ratio.ln_1p()).exp() * rest.sqrt() * gamma_ratio(a) / PI.sqrt();
    // The continued fraction converges fast on its own side of the mean.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(a, b, x) / a
    } else {
        1.0 - front * fraction(b, a, rest) / b
    }
}

/// The t with P(T <= t) = p, for p above one half.
pub(crate) fn quantile(p: f64, df: f64) -> f64 {
    let tail = 1.0 - p;
    let (mut low, mut high) = (0.0, 2.0);
    while upper_tail(high, df) > tail {
        low = high;
        high *= 2.0;
    }
    let mut t = f64::midpoint(low, high);
    for _ in 0..200 {
        let excess = upper_tail(t, df) - tail;
        if excess > 0.0 {
            low = t
        } else {
            high = t
        }
        // Newton where it stays between the bounds, else halving.
        let newton = t + excess / density(t, df);
        let next = match newton > low && newton < high {
            true => newton,
            false => f64::midpoint(low, high),
        };
        if (next - t).abs() <= 1e-15 * t {
            return next;
        }
        t = next;
    }
    t
}

fn density(t: f64, df: f64) -> f64 {
    let a = df / 2.0;
    gamma_ratio(a) / (df * PI).sqrt() * (-(a + 0.5) * (t * t / df).ln_1p()).exp()
}

/// Γ(a + ½) / Γ(a). As a difference of logarithms it would lose all digits for large `a`.
pub(crate) fn gamma_ratio(a: f64) -> f64 {
    let (mut a, mut factor) = (a, 1.0);
    while a < 30.0 {
        factor *= a / (a + 0.5);
        a += 1.0;
    }
    let inverse = 1.0 / a;
    let square = inverse * inverse;
    let series = -1.0 / 8.0
        + square
            * (1.0 / 192.0
                + square * (-1.0 / 640.0 + square * (17.0 / 14_336.0 - square * 31.0 / 18_432.0)));
    factor * a.sqrt() * (series * inverse).exp()
}

/// The continued fraction of the incomplete beta function, by Lentz's method.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let kept = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / kept(1.0 - (a + b) * x / (a + 1.0));
    let mut h = d;
    for m in 1..100_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / kept(1.0 + even * d);
        c = kept(1.0 + even / c);
        h *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / kept(1.0 + odd * d);
        c = kept(1.0 + odd / c);
        h *= d * c;
        if (d * c - 1.0).abs() < 1e-16 {
            break;
        }
    }
    h
}
