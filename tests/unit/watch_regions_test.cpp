// SPDX-License-Identifier: Apache-2.0
// Regions over time: what grew is told by addresses, through merges, splits, moves and new permissions.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "core/regions/growth_shape.h"
#include "core/regions/pairing.h"
#include "core/regions/tracker.h"
#include "core/regions/watch_view.h"

namespace whomap {
namespace {

constexpr std::uint64_t kib = 1024, mib = 1024 * kib;
constexpr std::uint64_t second = 1'000'000'000;

std::string line(std::uint64_t start, std::uint64_t end, std::uint64_t rss, const std::string& perms = "rw-p",
                 const std::string& name = "", std::uint64_t inode = 0) {
  return fmt::format("{:x}-{:x} {} 00000000 00:00 {} {}\nRss: {} kB\nPss: {} kB\nSwap: 0 kB\n", start, end,
                     perms, inode, name, rss / kib, rss / kib);
}

Snapshot at(std::uint64_t seconds, const std::string& text, std::uint64_t rss_anon = 0) {
  Snapshot snapshot = snapshot_from_text(text);
  EXPECT_TRUE(snapshot.unparsed.empty());
  snapshot.time_ns = (seconds + 1) * second;
  snapshot.totals.rss_anon = rss_anon;
  return snapshot;
}

const RegionTrack& track_at(const RegionTracker& tracker, std::size_t index) {
  return tracker.tracks()[tracker.track_of(index)];
}

TEST(Series, KeepsOnlyChangesAndThinsThemEvenly) {
  Series series;
  for (std::uint64_t i = 0; i < 1000; ++i) series.add(i * second, 7);
  EXPECT_EQ(series.points().size(), 1U);
  Series ramp;
  for (std::uint64_t i = 0; i <= 10'000; ++i) ramp.add(i * second, static_cast<double>(i), 64);
  EXPECT_LE(ramp.points().size(), 64U);
  EXPECT_GE(ramp.points().size(), 20U);
  EXPECT_EQ(ramp.first(), 0);
  EXPECT_EQ(ramp.last(), 10'000);
  // Anywhere in the past the value is off by no more than the spacing of what was kept.
  for (std::uint64_t i = 0; i <= 10'000; i += 500)
    EXPECT_NEAR(ramp.at(i * second), static_cast<double>(i), 700);
}

TEST(Series, TheSumOfTwoHasTheChangesOfBoth) {
  Series left, right;
  left.add(1, 10);
  left.add(5, 20);
  right.add(3, 100);
  right.add(5, 200);
  left.merge(right);
  EXPECT_EQ(left.at(1), 10);
  EXPECT_EQ(left.at(3), 110);
  EXPECT_EQ(left.at(5), 220);
  left.subtract(right);
  EXPECT_EQ(left.at(3), 10);
  EXPECT_EQ(left.last(), 20);
}

Series series_of(const std::vector<double>& values) {
  Series series;
  for (std::size_t i = 0; i < values.size(); ++i) series.add((i + 1) * second, values[i]);
  return series;
}

GrowthShape shape_of(const std::vector<double>& values) {
  return find_shape(series_of(values), second, values.size() * second, values.size());
}

// A watch of 12 s, and a trace of 2 s that came 15 s later.
TEST(GrowthShape, ALeakIsSteadyAcrossATimeInWhichNobodyLooked) {
  Series series;
  for (std::uint64_t at = 1; at <= 12; ++at) series.add(at * second, static_cast<double>(at * mib));
  series.add(27 * second, 27.0 * mib);
  series.add(29 * second, 29.0 * mib);
  const GrowthShape shape = find_shape(series, second, 29 * second, 14, {12 * second, 27 * second});
  EXPECT_EQ(shape.pattern, GrowthPattern::steady);
  ASSERT_TRUE(shape.slope.has_value());
  EXPECT_NEAR(shape.slope->per_second, mib, 0.1 * mib);
  EXPECT_GT(shape.slope->low, 0.8 * mib);
  // What was flat until then and after it is no trend for having risen meanwhile.
  Series once;
  for (std::uint64_t at = 1; at <= 12; ++at) once.add(at * second, 5.0 * mib);
  once.add(27 * second, 9.0 * mib);
  once.add(29 * second, 9.0 * mib);
  EXPECT_NE(find_shape(once, second, 29 * second, 14, {12 * second, 27 * second}).pattern,
            GrowthPattern::steady);
}

TEST(GrowthShape, TellsSteadyStepsPlateauFlatAndFalling) {
  std::vector<double> steady, plateau, flat, falling, steps, noise;
  for (int i = 0; i < 60; ++i) {
    steady.push_back(static_cast<double>(mib) * i);
    plateau.push_back(static_cast<double>(mib) * std::min(i, 25));
    flat.push_back(static_cast<double>(4 * kib) * (i % 2));
    falling.push_back(static_cast<double>(mib) * (60 - i));
    steps.push_back(static_cast<double>(8 * mib) * (i / 20));
    noise.push_back(static_cast<double>(mib) * (i * 7 % 11));
  }
  const GrowthShape shape = shape_of(steady);
  EXPECT_EQ(shape.pattern, GrowthPattern::steady);
  ASSERT_TRUE(shape.slope);
  EXPECT_NEAR(shape.slope->per_second, static_cast<double>(mib), static_cast<double>(mib) / 50);
  EXPECT_GT(shape.slope->low, 0);
  EXPECT_EQ(shape_of(plateau).pattern, GrowthPattern::plateau);
  EXPECT_NEAR(shape_of(plateau).quiet_seconds, 34, 1);
  EXPECT_EQ(shape_of(flat).pattern, GrowthPattern::flat);
  EXPECT_EQ(shape_of(falling).pattern, GrowthPattern::falling);
  EXPECT_EQ(shape_of(steps).pattern, GrowthPattern::steps);
  EXPECT_EQ(shape_of(steps).steps.size(), 2U);
  EXPECT_EQ(shape_of(noise).pattern, GrowthPattern::unclear);
  EXPECT_EQ(shape_of({0, 1e6}).pattern, GrowthPattern::unknown);
  // A leak whose rate wavers slowly: the readings hang together, and the interval is wide.
  std::vector<double> wavering{0};
  for (int i = 1; i < 60; ++i)
    wavering.push_back(wavering.back() + static_cast<double>(mib) * (i % 30 < 15 ? 3 : 1));
  EXPECT_EQ(shape_of(wavering).pattern, GrowthPattern::steady);
}

// The arena of the second investigation: 256 MB, 512 MB, 1 GB, 2 GB, with small other growth between.
TEST(GrowthShape, NamesStepsThatDouble) {
  std::vector<double> values;
  double held = 0;
  for (int i = 0; i < 100; ++i) {
    if (i == 10) held += 256.0 * static_cast<double>(mib);
    if (i == 20) held += 512.0 * static_cast<double>(mib);
    if (i == 40) held += 1024.0 * static_cast<double>(mib);
    if (i == 80) held += 2048.0 * static_cast<double>(mib);
    if (i % 9 == 0) held += 3.0 * static_cast<double>(mib);
    values.push_back(held);
  }
  const GrowthShape shape = shape_of(values);
  EXPECT_EQ(shape.pattern, GrowthPattern::doubling);
  ASSERT_EQ(shape.steps.size(), 4U);
  EXPECT_EQ(shape.steps.front().bytes, 256.0 * static_cast<double>(mib));
  EXPECT_EQ(shape.steps.back().bytes, 2048.0 * static_cast<double>(mib));
  EXPECT_TRUE(doubling_steps({{1, 10}, {2, 20}}).empty());
}

// D02: 64, 128, 192 and 256 KiB beside an older neighbour of 12 KiB: one region whose start falls.
TEST(Tracker, MappingsMergedIntoAnOlderNeighbourAreOneRegion) {
  constexpr std::uint64_t end = 0x7f0000100000;
  RegionTracker tracker;
  tracker.add(at(0, line(end - 12 * kib, end, 12 * kib)));
  std::uint64_t t = 0;
  for (const std::uint64_t size : {76, 204, 396, 652}) {
    const std::uint64_t touched = size * kib;
    tracker.add(at(++t, line(end - size * kib, end, touched)));
  }
  ASSERT_EQ(tracker.latest().regions.size(), 1U);
  const RegionTrack& track = track_at(tracker, 0);
  EXPECT_FALSE(track.born);
  EXPECT_EQ(track.first_seen_ns, second);
  EXPECT_EQ(track.mapped_growth.last(), 640.0 * kib);
  EXPECT_EQ(track.resident_growth.last(), 640.0 * kib);
  EXPECT_EQ(track.changes, RegionChange::grew_below);
  EXPECT_EQ(track.start.points().size(), 5U);
  EXPECT_LT(track.start.last(), track.start.first());
}

// D04: one VMA of 6,156 kB, later six of 16 and 2,036 kB, all resident: nothing grew.
TEST(Tracker, ASplitRegionIsNoGrowth) {
  constexpr std::uint64_t start = 0x7f0000000000;
  std::string split;
  std::uint64_t from = start;
  for (int i = 0; i < 3; ++i) {
    split += line(from, from + 16 * kib, 16 * kib, "r--p");
    split += line(from + 16 * kib, from + 2052 * kib, 2036 * kib);
    from += 2052 * kib;
  }
  RegionTracker tracker;
  tracker.add(at(0, line(start, from, 6156 * kib), 6156 * kib));
  tracker.add(at(1, split, 6156 * kib));
  double mapped = 0, resident = 0;
  for (std::size_t i = 0; i < tracker.latest().regions.size(); ++i) {
    mapped += track_at(tracker, i).mapped_growth.last();
    resident += track_at(tracker, i).resident_growth.last();
    EXPECT_TRUE(track_at(tracker, i).changes & RegionChange::split);
  }
  EXPECT_EQ(mapped, 0);
  EXPECT_NEAR(resident, 0, 1);
  EXPECT_FALSE(saw_growth(tracker));
}

TEST(Tracker, MergedRegionsKeepTheGrowthOfBoth) {
  RegionTracker tracker;
  tracker.add(at(0, line(0x100000, 0x200000, 0) + line(0x400000, 0x500000, 0)));
  tracker.add(at(1, line(0x100000, 0x280000, 512 * kib) + line(0x380000, 0x500000, 512 * kib)));
  tracker.add(at(2, line(0x100000, 0x500000, 2 * mib)));
  ASSERT_EQ(tracker.latest().regions.size(), 1U);
  const RegionTrack& track = track_at(tracker, 0);
  EXPECT_TRUE(track.changes & RegionChange::merged);
  EXPECT_EQ(track.mapped_growth.last(), static_cast<double>(2 * mib));
  EXPECT_EQ(track.resident_growth.last(), static_cast<double>(2 * mib));
  EXPECT_EQ(track.resident_growth.at(2 * second), static_cast<double>(mib));
}

TEST(Tracker, AMoveIsNoGrowthAndUnmappingElsewhereIsNoMove) {
  RegionTracker tracker;
  tracker.add(at(0, line(0x100000, 0x500000, 4 * mib) + line(0x900000, 0xa00000, mib)));
  tracker.add(at(1, line(0x900000, 0xa00000, mib) + line(0x2000000, 0x2600000, 4 * mib)));
  EXPECT_TRUE(track_at(tracker, 1).changes & RegionChange::moved);
  EXPECT_EQ(track_at(tracker, 1).mapped_growth.last(), static_cast<double>(2 * mib));  // grown by mremap
  EXPECT_EQ(track_at(tracker, 1).resident_growth.last(), 0);
  // The same size, but its pages did not come along: unmapped there, mapped here.
  tracker.add(at(2, line(0x900000, 0xa00000, mib) + line(0x5000000, 0x5600000, 8 * kib)));
  EXPECT_FALSE(track_at(tracker, 1).changes & RegionChange::moved);
  EXPECT_TRUE(track_at(tracker, 1).born);
}

TEST(Tracker, PermissionsAndReuseOfAddressesAreToldApart) {
  RegionTracker tracker;
  tracker.add(at(0, line(0x100000, 0x500000, 0, "---p") + line(0x900000, 0xa00000, mib)));
  tracker.add(at(1, line(0x100000, 0x300000, 2 * mib) + line(0x300000, 0x500000, 0, "---p") +
                        line(0x900000, 0xa00000, 0, "rw-p", "/tmp/file", 77)));
  ASSERT_EQ(tracker.latest().regions.size(), 3U);
  EXPECT_TRUE(track_at(tracker, 0).changes & RegionChange::opened);
  EXPECT_EQ(track_at(tracker, 0).mapped_growth.last(), 0);
  EXPECT_EQ(track_at(tracker, 0).resident_growth.last(), static_cast<double>(2 * mib));
  EXPECT_TRUE(track_at(tracker, 2).changes & RegionChange::replaced);
  EXPECT_FALSE(track_at(tracker, 2).changes & RegionChange::opened);
}

TEST(Tracker, ReadingsOfMapsKeepWhatSmapsKnew) {
  RegionTracker tracker;
  tracker.add(at(0, line(0x100000, 0x200000, mib)));
  tracker.add(at(1, "100000-200000 rw-p 00000000 00:00 0 \n"));
  EXPECT_EQ(tracker.latest().regions[0].rss, mib);
  EXPECT_EQ(track_at(tracker, 0).resident_growth.last(), 0);
  tracker.add(at(2, "100000-300000 rw-p 00000000 00:00 0 \n"));
  EXPECT_EQ(track_at(tracker, 0).mapped_growth.last(), static_cast<double>(mib));
  tracker.add(at(3, line(0x100000, 0x300000, 2 * mib)));
  EXPECT_EQ(track_at(tracker, 0).resident_growth.last(), static_cast<double>(mib));
}

TEST(Tracker, AnObjectThatIsMappedTwiceCountsOnce) {
  const std::string twice =
      "100000-200000 rw-s 00000000 00:01 5 /memfd:x (deleted)\nRss: 1024 kB\nPss: 512 kB\n"
      "300000-400000 rw-s 00000000 00:01 5 /memfd:x (deleted)\nRss: 1024 kB\nPss: 512 kB\n";
  RegionTracker tracker;
  tracker.add(at(0, twice));
  ASSERT_EQ(tracker.groups().size(), 1U);
  EXPECT_EQ(tracker.groups()[0].count, 2U);
  EXPECT_EQ(tracker.groups()[0].resident, static_cast<double>(mib));
}

// An upgrade replaces the file of a library that stays mapped.
TEST(Tracker, AFileThatIsDeletedIsTheSameFile) {
  const auto library = [](const std::string& name, bool gone) {
    Snapshot made = snapshot_from_text(line(0x100000, 0x200000, mib, "r-xp", name, 7) +
                                       line(0x200000, 0x280000, 256 * kib, "r--p", name, 7) +
                                       line(0x280000, 0x290000, 64 * kib, "rw-p", name, 7) +
                                       line(0x300000, 0x310000, 64 * kib, "r--s", name, 7));
    for (Region& region : made.regions) region.deleted = gone ? Deleted::yes : Deleted::no;
    return made;
  };
  RegionTracker tracker;
  for (std::uint64_t i = 0; i < 10; ++i) {
    Snapshot snapshot = i < 5 ? library("/lib/x.so", false) : library("/lib/x.so (deleted)", true);
    snapshot.time_ns = (i + 1) * second;
    tracker.add(std::move(snapshot));
  }
  EXPECT_FALSE(track_at(tracker, 0).born);
  EXPECT_EQ(track_at(tracker, 0).changes, 0U);
  const WatchView view = view_of(tracker, {});
  ASSERT_EQ(view.rows.size(), 1U);
  EXPECT_EQ(view.rows[0].shape.pattern, GrowthPattern::flat);
}

TEST(Tracker, MemoryStaysBoundedOverADay) {
  RegionTracker tracker;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    std::string text;
    for (std::uint64_t k = 0; k < 4; ++k)
      text += line(0x10000000 * (k + 1), 0x10000000 * (k + 1) + (i + 1) * 4 * kib, (i + 1) * 4 * kib);
    tracker.add(at(i, text, i * 4 * kib));
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_LE(track_at(tracker, i).size.points().size(), 256U);
    EXPECT_EQ(track_at(tracker, i).mapped_growth.last(), 19'999.0 * 4 * kib);
  }
  EXPECT_EQ(tracker.tracks().size(), 4U);
}

TEST(WatchView, ManyRegionsAreOneRowAndTheOneThatGrowsIsItsOwn) {
  const auto text = [](std::uint64_t grown) {
    std::string made;
    for (std::uint64_t i = 0; i < 50; ++i) {
      const std::uint64_t start = 0x10000000 + i * 0x1000000;
      const std::uint64_t size = i == 7 ? mib + grown : 64 * kib;
      made += line(start, start + size, size);
    }
    return made;
  };
  RegionTracker tracker;
  for (std::uint64_t i = 0; i < 12; ++i) tracker.add(at(i, text(i * 256 * kib), mib + i * 256 * kib));
  const WatchView view = view_of(tracker, {});
  ASSERT_EQ(view.rows.size(), 2U);
  EXPECT_EQ(view.rows[0].count, 1U);
  EXPECT_EQ(view.rows[0].range->start, 0x17000000U);
  EXPECT_EQ(view.rows[0].shape.pattern, GrowthPattern::steady);
  EXPECT_EQ(view.rows[1].count, 49U);
  EXPECT_EQ(view.rows[1].resident_growth, 0);
  EXPECT_EQ(view.leading_rows, 1U);
  EXPECT_EQ(view.leading_share, 1);
  EXPECT_TRUE(saw_growth(tracker));
}

std::string file_line(std::uint64_t index, std::uint64_t rss) {
  const std::uint64_t start = 0x10000000 + index * 0x10000000;
  return line(start, start + 64 * mib, rss, "r--s", fmt::format("/data/{}", index), index + 1);
}

// A hundred files, each with a name of its own: the large ones and the rest, not a hundred rows.
TEST(WatchView, ManyNamesAreAFewRows) {
  RegionTracker tracker;
  for (std::uint64_t i = 0; i < 12; ++i) {
    std::string text;
    for (std::uint64_t k = 0; k < 100; ++k) text += file_line(k, (k + 1) * 64 * kib + i * 16 * kib);
    tracker.add(at(i, text));
  }
  const WatchView view = view_of(tracker, {});
  ASSERT_LE(view.rows.size(), 12U);
  std::uint64_t regions = 0, size = 0;
  double grown = 0;
  for (const WatchRow& row : view.rows) {
    regions += row.count;
    size += row.size;
    grown += row.resident_growth;
  }
  EXPECT_EQ(regions, 100U);
  EXPECT_EQ(size, 100 * 64 * mib);
  EXPECT_EQ(grown, 100.0 * 11 * 16 * kib);
  const WatchRow& rest = view.rows.front();  // together they grow fastest
  EXPECT_EQ(rest.names, rest.count);
  EXPECT_TRUE(rest.name.empty());
  EXPECT_EQ(rest.shape.pattern, GrowthPattern::steady);
  EXPECT_FALSE(rest.evidence.empty());
}

TEST(WatchView, OfManyNamesTheOneThatGrowsHasItsRow) {
  RegionTracker tracker;
  for (std::uint64_t i = 0; i < 12; ++i) {
    std::string text;
    for (std::uint64_t k = 0; k < 100; ++k) text += file_line(k, k == 3 ? 4 * kib + i * mib : 128 * kib);
    tracker.add(at(i, text));
  }
  const WatchView view = view_of(tracker, {});
  EXPECT_EQ(view.rows.front().name, "/data/3");
  EXPECT_EQ(view.rows.front().count, 1U);
  EXPECT_EQ(view.leading_regions, 1U);
}

// Readings of smaps may be rare: until the next one nothing is known of the regions, and that is not "flat".
TEST(WatchView, RowsEndWithTheirLastReading) {
  RegionTracker tracker;
  std::uint64_t t = 0;
  for (; t < 40; ++t) {
    const std::uint64_t grown = t * mib;
    if (t % 8 == 0)
      tracker.add(at(t, line(0x10000000, 0x20000000, grown), grown));
    else
      tracker.add_totals((t + 1) * second, {grown, 0, 0, 0, 0}, 1);
  }
  for (std::uint64_t late = 0; late < 20; ++late, ++t)
    tracker.add_totals((t + 1) * second, {t * mib, 0, 0, 0, 0}, 1);
  const WatchView view = view_of(tracker, {});
  ASSERT_EQ(view.rows.size(), 1U);
  EXPECT_EQ(view.rows[0].shape.seconds, 32);
  EXPECT_NEAR(view.rows[0].shape.rate(), static_cast<double>(mib), 1e4);
  EXPECT_NEAR(view.totals.rss_anon.rate(), static_cast<double>(mib), 1e4);
}

// Readings of maps between those of smaps know nothing of what is resident, and make no steps of it.
TEST(WatchView, ReadingsOfMapsMakeNoSteps) {
  RegionTracker tracker;
  for (std::uint64_t t = 0; t < 80; ++t) {
    if (t % 8 == 0)
      tracker.add(at(t, line(0x10000000, 0x20000000, t * mib), t * mib));
    else
      tracker.add(at(t, "10000000-20000000 rw-p 00000000 00:00 0 \n", t * mib));
  }
  EXPECT_EQ(view_of(tracker, {}).rows[0].shape.pattern, GrowthPattern::steady);
}

// Readings that were put off, since statm was the same, are known to have seen nothing change.
TEST(WatchView, ReadingsPutOffStillMakeSteps) {
  RegionTracker tracker;
  for (std::uint64_t t = 0; t < 60; ++t) {
    const std::uint64_t held = t / 20 * 8 * mib;
    if (t % 20 == 0) {
      tracker.add(at(t, line(0x10000000, 0x20000000, held), held));
    } else {
      tracker.add_totals((t + 1) * second, {held, 0, 0, 0, 0}, 1);
      tracker.add_unchanged((t + 1) * second, true);
    }
  }
  const WatchView view = view_of(tracker, {});
  EXPECT_EQ(view.rows[0].shape.pattern, GrowthPattern::steps);
  EXPECT_EQ(view.rows[0].shape.steps.size(), 2U);
}

// Buffers that come and go elsewhere each time: the group as a whole is flat, and no row grows.
TEST(WatchView, ComingAndGoingIsNoGrowth) {
  RegionTracker tracker;
  for (std::uint64_t i = 0; i < 20; ++i) {
    std::string text;
    for (std::uint64_t k = 0; k < 6; ++k) {
      const std::uint64_t start = 0x10000000 + (i * 6 + k) * 0x1000000;
      text += line(start, start + mib + k * 4 * kib, mib);
    }
    tracker.add(at(i, text, 6 * mib));
  }
  const WatchView view = view_of(tracker, {});
  for (const WatchRow& row : view.rows) EXPECT_LT(row.shape.change, least_shape_change);
  EXPECT_FALSE(saw_growth(tracker));
}

}  // namespace
}  // namespace whomap
