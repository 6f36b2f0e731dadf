package report

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Panel is one plot, of lines over a logarithmic axis of both.
type Panel struct {
	Title, X, Y string
	Lines       []Line
}

// Line is one contender's line.
type Line struct {
	Name string
	X, Y []float64
}

const (
	panelWidth  = 5 * vg.Inch
	panelHeight = 3.6 * vg.Inch
	legendWidth = 3 * vg.Inch
)

// Plot writes the panels beside each other as SVG, and the legend of the first beside them.
func Plot(w io.Writer, panels []Panel) error {
	plots := make([]*plot.Plot, len(panels))
	var legend plot.Legend
	for i := range panels {
		p, err := panels[i].plot()
		if err != nil {
			return fmt.Errorf("plot %q: %w", panels[i].Title, err)
		}
		plots[i] = p
		if i == 0 {
			legend = p.Legend
		}
		p.Legend = plot.NewLegend()
	}
	width := vg.Length(len(plots)) * panelWidth
	canvas := vgsvg.New(width+legendWidth, panelHeight)
	whole := draw.New(canvas)
	// A page may be dark, and the lines are made for a light one.
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: vg.Points(16), PadTop: vg.Points(8), PadRight: vg.Points(10),
		PadBottom: vg.Points(4), PadLeft: vg.Points(6)}
	for i, tile := range plot.Align([][]*plot.Plot{plots}, tiles, draw.Crop(whole, 0, -legendWidth, 0, 0))[0] {
		plots[i].Draw(tile)
	}
	legend.Draw(draw.Crop(whole, width, 0, 0, -vg.Points(30)))
	if _, err := canvas.WriteTo(w); err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	return nil
}

func (panel *Panel) plot() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = panel.Title, panel.X, panel.Y
	for _, style := range []*draw.TextStyle{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant = "Sans"
		style.Font.Size = font.Points(11)
	}
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = ticks{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100}
	p.Add(plotter.NewGrid())
	var callers ticks
	for i, line := range panel.Lines {
		// Zero, as of what only fails, has no place on a logarithmic axis.
		var points plotter.XYs
		for j, y := range line.Y {
			if y > 0 && !math.IsInf(y, 0) {
				points = append(points, plotter.XY{X: line.X[j], Y: y})
			}
		}
		callers = line.X
		if len(points) == 0 {
			continue
		}
		drawn, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line.Name, err)
		}
		color := plotutil.DarkColors[i%len(plotutil.DarkColors)]
		drawn.Color, marks.Color = color, color
		marks.Shape = plotutil.Shape(i)
		drawn.Width, drawn.Dashes = vg.Points(1.2), plotutil.Dashes(i)
		if i == 0 {
			drawn.Width = vg.Points(2.5)
		}
		p.Add(drawn, marks)
		p.Legend.Add(line.Name, drawn, marks)
	}
	p.X.Tick.Marker = callers
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(4)
	p.Y.Min, p.Y.Max = min(p.Y.Min, 0.1), max(p.Y.Max, 2)
	return p, nil
}

// ticks are marks at these places of an axis.
type ticks []float64

// Ticks implements plot.Ticker.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	var all []plot.Tick
	for _, at := range t {
		if low <= at && at <= high {
			all = append(all, plot.Tick{Value: at, Label: strconv.FormatFloat(at, 'g', -1, 64)})
		}
	}
	return all
}
