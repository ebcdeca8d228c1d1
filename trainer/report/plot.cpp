// SPDX-License-Identifier: BSD-3-Clause
#include "report/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace trainer::plot {

namespace {

constexpr double kWidth = 760, kLeft = 64, kRight = 16, kTop = 10, kBottom = 42, kLegendHeight = 20;

// Values from `low` to `high` on a stretch of the picture; where high lies left or above, from > to.
struct Scale {
  double low, high, from, to;
  double operator()(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

// Round values, four to eight of them.
std::vector<double> ticks(double low, double high) {
  const double rough = (high - low) / 6, power = std::pow(10, std::floor(std::log10(rough)));
  double step = power;
  for (double factor : {2.0, 5.0, 10.0})
    if (step < rough) step = factor * power;
  std::vector<double> values;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i)
    values.push_back(i * step + 0.0);  // + 0.0: no -0
  return values;
}

class Picture {
 public:
  explicit Picture(double height) : height_(height) {}

  void rectangle(double x, double y, double width, double height, const std::string& color, double opacity,
                 const std::string& title) {
    body_ += fmt::format(
        "<rect x='{:.1f}' y='{:.1f}' width='{:.2f}' height='{:.1f}' fill='{}' "
        "opacity='{}'><title>{}</title></rect>\n",
        x, y, std::max(width, 0.0), height, color, opacity, escaped(title));
  }
  void line(double x1, double y1, double x2, double y2, const std::string& color) {
    body_ += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='{}'/>\n", x1, y1, x2,
                         y2, color);
  }
  void text(double x, double y, const char* anchor, const std::string& words, double turned = 0) {
    body_ += fmt::format(
        "<text x='{0:.1f}' y='{1:.1f}' text-anchor='{2}' transform='rotate({3} {0:.1f} "
        "{1:.1f})'>{4}</text>\n",
        x, y, anchor, turned, escaped(words));
  }
  void raw(const std::string& element) { body_ += element; }

  // Names with a square or line of their colour, side by side.
  template <class Entries>
  void legend(const Entries& entries) {
    double x = kLeft;
    for (const auto& entry : entries) {
      rectangle(x, 4, 11, 11, entry.color, 1, entry.name);
      text(x + 16, 14, "start", entry.name);
      x += 32 + 6.6 * static_cast<double>(entry.name.size());
    }
  }
  void horizontal_axis(const Scale& scale, double y, double up_to, const std::string& label,
                       double unit = 1) {
    for (double tick : ticks(scale.low / unit, scale.high / unit)) {
      const double x = scale(tick * unit);
      line(x, up_to, x, y, "#e4e4e4");
      text(x, y + 15, "middle", fmt::format("{:g}", tick));
    }
    line(scale.from, y, scale.to, y, "#555");
    text((scale.from + scale.to) / 2, y + 33, "middle", label);
  }

  std::string finish() const {
    return fmt::format(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1:.0f}' width='{0}' height='{1:.0f}' "
        "font-family='sans-serif' font-size='12'>"
        "\n{2}</svg>\n",
        kWidth, height_, body_);
  }

 private:
  double height_;
  std::string body_;
};

// What a value would be divided by so that axes have small numbers, and its unit.
struct Unit {
  double size;
  const char* name;
};
Unit unit_of(double largest, const std::vector<Unit>& units) {
  for (const Unit& unit : units)
    if (largest >= unit.size) return unit;
  return units.back();
}

const std::vector<Unit> kBytes = {{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}, {1, "B"}};
const std::vector<Unit> kSeconds = {{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}};

std::string with_unit(double value, const std::vector<Unit>& units) {
  if (value == 0) return fmt::format("0 {}", units.back().name);
  const Unit unit = unit_of(std::abs(value), units);
  const double number = value / unit.size;
  const int decimals = number < 10 ? 2 : number < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", number, unit.size == 1 && &units == &kBytes ? 0 : decimals, unit.name);
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Room at both ends, and never empty.
  void widen(double share) {
    if (!(low <= high)) low = 0, high = 1;
    const double room = high > low ? share * (high - low) : std::max(std::abs(high) * 0.05, 0.5);
    low -= room;
    high += room;
  }
};

// Where a label ends and bars begin.
template <class Rows, class Label>
double label_width(const Rows& rows, Label label) {
  std::size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, label(row).size());
  return 16 + 6.4 * static_cast<double>(longest);
}

void draw(Picture& picture, const Line& line, const Scale& x, const Scale& y) {
  std::string points, dots;
  for (std::size_t i = 0; i < line.x.size(); ++i) {
    if (!std::isfinite(line.y[i])) continue;
    points += fmt::format("{:.1f},{:.1f} ", x(line.x[i]), y(line.y[i]));
    if (line.stroke == Stroke::Dots)
      dots += fmt::format(
          "<circle cx='{:.1f}' cy='{:.1f}' r='3.5' fill='{}'><title>{}: {:g}, {:.5g}</title></circle>\n",
          x(line.x[i]), y(line.y[i]), line.color, escaped(line.name), line.x[i], line.y[i]);
  }
  const bool faint = line.stroke == Stroke::Faint;
  picture.raw(
      fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='{}' "
                  "opacity='{}'{}><title>{}</title></polyline>\n",
                  points, line.color, faint ? 1 : 1.8, faint ? 0.35 : 1,
                  line.stroke == Stroke::Dashed ? " stroke-dasharray='6 4'" : "", escaped(line.name)));
  picture.raw(dots);
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text) switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  return result;
}

std::string bytes(double value) { return with_unit(value, kBytes); }
std::string seconds(double value) { return with_unit(value, kSeconds); }

std::string svg(const LinePlot& plot) {
  constexpr double kHeight = 320;
  Range across, up;
  for (const Line& line : plot.lines) {
    for (double x : line.x) across.take(x);
    for (double y : line.y) up.take(y);
  }
  if (plot.y_from_zero) up.take(0);
  across.widen(0);
  up.widen(0.04);
  if (plot.y_from_zero) up.low = 0;
  Picture picture(kHeight);
  const double top = kTop + kLegendHeight, bottom = kHeight - kBottom;
  const Scale x{across.low, across.high, kLeft, kWidth - kRight}, y{up.low, up.high, bottom, top};
  picture.legend(plot.lines);
  picture.horizontal_axis(x, bottom, top, plot.x_label);
  for (double tick : ticks(up.low, up.high)) {
    picture.line(kLeft, y(tick), kWidth - kRight, y(tick), "#e4e4e4");
    picture.text(kLeft - 6, y(tick) + 4, "end", fmt::format("{:g}", tick));
  }
  picture.line(kLeft, top, kLeft, bottom, "#555");
  picture.text(16, (top + bottom) / 2, "middle", plot.y_label, -90);
  for (const Line& line : plot.lines) draw(picture, line, x, y);
  return picture.finish();
}

namespace {

std::vector<BarPlot::Segment> used_segments(const BarPlot& plot) {
  std::vector<BarPlot::Segment> used;
  for (std::size_t s = 0; s < plot.segments.size(); ++s)
    if (std::any_of(plot.bars.begin(), plot.bars.end(),
                    [&](const BarPlot::Bar& bar) { return bar.values[s] > 0; }))
      used.push_back(plot.segments[s]);
  return used;
}

}  // namespace

std::string svg(const BarPlot& plot) {
  constexpr double kBar = 17, kFaintBar = 7, kGap = 7;
  double height = kTop + kLegendHeight, most = 0;
  for (const BarPlot::Bar& bar : plot.bars) {
    height += bar.faint ? kFaintBar : kBar + kGap;
    double sum = 0;
    for (double value : bar.values) sum += value;
    most = std::max(most, sum);
  }
  const std::vector<Unit>& units = plot.quantity == Quantity::Seconds ? kSeconds : kBytes;
  const Unit unit = unit_of(most, units);
  const double left = label_width(plot.bars, [](const BarPlot::Bar& bar) { return bar.label; });
  const Scale x{0, most > 0 ? most : 1, left, kWidth - 80};
  Picture picture(height + kBottom);
  picture.legend(used_segments(plot));
  picture.horizontal_axis(x, height, kTop + kLegendHeight, fmt::format("{}, {}", plot.label, unit.name),
                          unit.size);
  double y = kTop + kLegendHeight;
  for (const BarPlot::Bar& bar : plot.bars) {
    if (!bar.faint) y += kGap;
    const double thick = bar.faint ? kFaintBar : kBar;
    double sum = 0;
    for (std::size_t s = 0; s < bar.values.size(); ++s) {
      if (bar.values[s] <= 0) continue;
      picture.rectangle(x(sum), y, x(sum + bar.values[s]) - x(sum), thick, plot.segments[s].color,
                        bar.faint ? 0.45 : 1,
                        fmt::format("{}{}: {}", plot.segments[s].name, bar.faint ? " by the formula" : "",
                                    with_unit(bar.values[s], units)));
      sum += bar.values[s];
    }
    if (!bar.faint) {
      picture.text(left - 6, y + 13, "end", bar.label);
      picture.text(x(sum) + 5, y + 13, "start", with_unit(sum, units));
    }
    y += thick;
  }
  return picture.finish();
}

std::string svg(const TimePlot& plot) {
  constexpr double kRow = 22, kGap = 5;
  const double top = kTop + kLegendHeight, length = plot.end > plot.begin ? plot.end - plot.begin : 1;
  const double bottom = top + (kRow + kGap) * static_cast<double>(plot.rows.size()) + kGap;
  const double left = label_width(plot.rows, [](const std::string& row) { return row; });
  const Scale x{0, length, left, kWidth - kRight};
  const Unit unit = unit_of(length / 2, kSeconds);
  Picture picture(bottom + kBottom);
  std::vector<TimePlot::Kind> used;
  for (std::size_t kind = 0; kind < plot.kinds.size(); ++kind)
    if (std::ranges::any_of(plot.spans, [&](const TimePlot::Span& span) { return span.kind == kind; }))
      used.push_back(plot.kinds[kind]);
  picture.legend(used);
  picture.horizontal_axis(x, bottom, top, unit.name, unit.size);
  auto row_top = [&](std::size_t row) { return top + kGap + (kRow + kGap) * static_cast<double>(row); };
  for (std::size_t row = 0; row < plot.rows.size(); ++row) {
    picture.text(left - 6, row_top(row) + 15, "end", plot.rows[row]);
    picture.rectangle(left, row_top(row), kWidth - kRight - left, kRow, "#f0f0f0", 1,
                      "neither computing nor waiting");
  }
  for (bool thin : {false, true})
    for (const TimePlot::Span& span : plot.spans) {
      const double begin = std::max(span.begin - plot.begin, 0.0),
                   end = std::min(span.end - plot.begin, length);
      if (span.thin != thin || end <= begin) continue;
      picture.rectangle(x(begin), row_top(span.row) + (thin ? kRow / 2 : 0), x(end) - x(begin),
                        thin ? kRow / 2 : kRow, plot.kinds[span.kind].color, 1,
                        fmt::format("{}: {}", span.title, seconds(span.end - span.begin)));
    }
  return picture.finish();
}

}  // namespace trainer::plot
