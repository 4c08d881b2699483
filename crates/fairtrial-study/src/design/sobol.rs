//! The Sobol sequence with Joe and Kuo's direction numbers (set 6), in Gray-code order.

/// Dimensions in the table below, the first included.
pub(super) const MOST_DIMENSIONS: usize = 21;

/// Of each dimension after the first: the polynomial's inner coefficients, then its initial numbers, as many as its
/// degree.
const DIRECTIONS: [(u32, &[u32]); MOST_DIMENSIONS - 1] = [
    (0, &[1]),
    (1, &[1, 3]),
    (1, &[1, 3, 1]),
    (2, &[1, 1, 1]),
    (1, &[1, 1, 3, 3]),
    (4, &[1, 3, 5, 13]),
    (2, &[1, 1, 5, 5, 17]),
    (4, &[1, 1, 5, 5, 5]),
    (7, &[1, 1, 7, 11, 19]),
    (11, &[1, 1, 5, 1, 1]),
    (13, &[1, 1, 1, 3, 11]),
    (14, &[1, 3, 5, 5, 31]),
    (1, &[1, 3, 3, 9, 7, 49]),
    (13, &[1, 1, 1, 15, 21, 21]),
    (16, &[1, 3, 1, 13, 27, 49]),
    (19, &[1, 1, 1, 15, 7, 5]),
    (22, &[1, 3, 1, 15, 13, 25]),
    (25, &[1, 1, 5, 5, 19, 61]),
    (1, &[1, 3, 7, 11, 23, 15, 103]),
    (4, &[1, 3, 7, 13, 13, 15, 69]),
];

/// The first `n` points, per dimension, as 32-bit fractions; none for more dimensions than there are.
pub(super) fn points(dimensions: usize, n: usize) -> Option<Vec<Vec<u32>>> {
    (dimensions <= MOST_DIMENSIONS).then(|| {
        (0..dimensions)
            .map(|dimension| sequence(dimension, n))
            .collect()
    })
}

fn sequence(dimension: usize, n: usize) -> Vec<u32> {
    let directions = directions(dimension);
    let mut point = 0;
    let mut points = Vec::with_capacity(n);
    for index in 0..n as u32 {
        points.push(point);
        point ^= directions[index.trailing_ones() as usize];
    }
    points
}

fn directions(dimension: usize) -> [u32; 32] {
    let mut directions = [0; 32];
    if dimension == 0 {
        for (bit, direction) in directions.iter_mut().enumerate() {
            *direction = 1 << (31 - bit);
        }
        return directions;
    }
    let (coefficients, initial) = DIRECTIONS[dimension - 1];
    let degree = initial.len();
    for (bit, number) in initial.iter().enumerate() {
        directions[bit] = number << (31 - bit);
    }
    for bit in degree..32 {
        let earlier = directions[bit - degree];
        let mut direction = earlier ^ (earlier >> degree);
        for inner in 1..degree {
            if coefficients >> (degree - 1 - inner) & 1 == 1 {
                direction ^= directions[bit - inner];
            }
        }
        directions[bit] = direction;
    }
    directions
}
