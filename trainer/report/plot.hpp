// SPDX-License-Identifier: BSD-3-Clause
//
// The room of what is told when a run has ended: plots as SVG, and pages made of them.
#pragma once
#include <string>
#include <vector>

namespace trainer::plot {

/// Colours that people with colour blindness tell apart (Okabe and Ito 2008).
inline constexpr const char* kBlue = "#0072b2";
inline constexpr const char* kSky = "#56b4e9";
inline constexpr const char* kGreen = "#009e73";
inline constexpr const char* kOrange = "#e69f00";
inline constexpr const char* kRed = "#d55e00";
inline constexpr const char* kPurple = "#cc79a7";
inline constexpr const char* kGrey = "#9a9a9a";

/// Text as it stands in HTML and SVG.
std::string escaped(const std::string& text);
/// "3.72 MB", "0 B"; powers of 1000.
std::string bytes(double value);
/// "1.25 ms", "3.2 s".
std::string seconds(double value);

enum class Stroke : unsigned char { Solid, Faint, Dashed, Dots };

struct Line {
  std::string name, color;
  Stroke stroke;
  std::vector<double> x, y;  ///< of equal length; what is not finite is left out
};

/// Lines over two linear axes that hold all points. One picture element `<svg>`; so is what follows.
struct LinePlot {
  std::string x_label, y_label;
  std::vector<Line> lines;
  bool y_from_zero = false;
};
std::string svg(const LinePlot& plot);

enum class Quantity : unsigned char { Bytes, Seconds };

/// Horizontal bars, each of segments one after the other.
struct BarPlot {
  struct Segment {
    std::string name, color;
  };
  struct Bar {
    std::string label;
    std::vector<double> values;  ///< by segment
    bool faint = false;  ///< a thinner one in paler colours: what was expected, below what was measured
  };
  std::string label;
  Quantity quantity;
  std::vector<Segment> segments;
  std::vector<Bar> bars;
};
std::string svg(const BarPlot& plot);

/// What went on when, a row for each of several actors.
struct TimePlot {
  struct Kind {
    std::string name, color;
  };
  struct Span {
    std::size_t row, kind;
    double begin, end;  ///< seconds
    std::string title;  ///< shown where the mouse points
    bool thin = false;  ///< drawn over others, in the lower half of the row
  };
  std::vector<std::string> rows;
  std::vector<Kind> kinds;
  std::vector<Span> spans;
  double begin, end;
};
std::string svg(const TimePlot& plot);

}  // namespace trainer::plot
